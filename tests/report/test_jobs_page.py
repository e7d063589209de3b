"""The page of many jobs: its contents, and how a browser shows it; and how long a thousand runs take."""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.history.recordings import RECORDED
from tests.report import browser
from tests.report.browser import Browser
from tests.report.job_stories import docs_job, row
from tests.report.test_report_page import HOSTILE, Tree

from ft_supervisor.report import jobs_page
from ft_supervisor.report.job_time import of_job
from ft_supervisor.report.jobs import join
from ft_supervisor.report.jobs_sources import Listing, read_accounts

CHROMIUM = browser.installed()
LONG = "a-very-long-name-without-any-blank-at-which-it-could-be-broken"


def jobs(number: int, job_name: str = "train") -> Listing:
    records, histories = docs_job()
    rows = [
        replace(each, job_id=job, name=f"123_{job}", job_name=job_name) for job in range(number) for each in records
    ]
    return Listing(join(rows), accounts={job: of_job(records, histories, 10_000.0) for job in range(number)})


def page(listing: Listing) -> str:
    return jobs_page.render(listing, "30d", None, None)


def test_the_page_tells_it_all() -> None:
    tree = Tree(page(jobs(2)))
    assert not {tag for tag, _ in tree.tags} & {"script", "img", "iframe", "object", "form"}
    for words in (
        "123_0",
        "123_1",
        "2 jobs",
        "ratio 85.0 %",
        "requeue",
        "n3",
        "best every 5 min",
        "training 4 h 43 min",
    ):
        assert words in tree.text, words


def test_the_bar_is_the_whole() -> None:
    whole = jobs(1).accounts[0]
    shares = jobs_page.shares(whole)
    assert sum(each.share for each in shares) == pytest.approx(1) and shares[0].kind == "training"


def test_a_page_without_jobs_and_one_without_journals() -> None:
    assert "0 jobs" in Tree(page(Listing([]))).text
    text = Tree(page(Listing(jobs(1).jobs, notes=["a note"]))).text
    assert "0 jobs (1 more without journals)" in text and "Where" not in text and "a note" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_other_people_s_texts_stay_texts(text: str) -> None:
    tree = Tree(page(jobs(1, job_name=text)))
    assert text in tree.text and not {tag for tag, _ in tree.tags} & {"script", "img"}


def test_a_job_whose_folder_has_no_possible_name_is_a_note() -> None:
    listing = Listing(join([row(0, 10, 20)]))
    read_accounts(listing, ("/a\0b",), None, 100.0)
    assert len(listing.notes) == 1 and "journals cannot be read" in listing.notes[0]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(f"none of {', '.join(browser.NAMES)} is installed")
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.slow("tests/report/test_jobs_page.py::test_the_page_tells_it_all")
@pytest.mark.parametrize("width", [1280, 800, 380])
def test_nothing_is_wider_than_the_window(chromium: Browser, tmp_path: Path, width: int) -> None:
    path = tmp_path / "jobs.html"
    path.write_text(page(jobs(3, job_name=LONG)))
    chromium.open(path, width)
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    parts = chromium.evaluate(
        "[...document.querySelectorAll('.stack div')].map(each => getComputedStyle(each).backgroundColor)"
    )
    assert len(set(parts)) == len(parts) > 5, "each part has its own colour"


@pytest.mark.slow("tests/cli/test_report_jobs.py::test_the_ratio_of_jobs_and_what_was_lost")
def test_a_thousand_runs_in_one_folder(tmp_path: Path) -> None:
    cases = ["crash", "node-lost", "takeover", "budget-spent", "hang"]
    for number in range(1000):
        shutil.copytree(RECORDED / cases[number % 5] / "4242.0.0", tmp_path / f"{number}.0.0", copy_function=os.link)
    start = 1_795_261_240
    rows = [replace(row(start, start, start + 60), job_id=number, name=str(number)) for number in range(1000)]
    listing = Listing(join(rows))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    read_accounts(listing, (str(tmp_path),), None, start + 100.0)
    took, grew = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert all(account.known for account in listing.accounts.values()) and len(listing.accounts) == 1000
    assert took < 100 and grew < 100_000, f"{took:.1f} s, {grew / 1000:.0f} MB"
    assert not listing.notes and len(page(listing)) < 2_000_000
