"""The commands of README and docs that are marked `run` do run: each page's in turn, as somebody would who follows it.

Some are whole jobs, so scripts/test runs this file in the stage `processes`.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ft_docs.pages import Block, Page, pages

REPOSITORY = Path(__file__).resolve().parents[2]
FOR_USERS = [page for page in pages(REPOSITORY) if page.path.name != "CONTRIBUTING.md"]
PROMISED = {"quickstart.md": r"· [2-9] cycles · ", "README.md": "event=verdict outcome=success "}
"""What is to be seen on the way: regular expressions."""
MARKS = {"README.md": pytest.mark.slow("the page quickstart.md, which runs the same training")}
BOUND = 270.0
"""Seconds for all of a page, which takes 20 to 50 where it runs jobs; less than pytest gives a test."""


def marked(page: Page, language: str) -> list[Block]:
    return [block for block in page.blocks if (block.language, block.kind) == (language, "run")]


def run(line: Sequence[str], folder: Path, environ: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and output; nothing of it is left when it takes too long."""
    process = subprocess.Popen(
        line, cwd=folder, env={**os.environ, **environ}, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=BOUND)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # `local` ends its nodes then
        try:
            output, _ = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        pytest.fail(f"not over after {BOUND:.0f} s:\n{output}")
    return process.returncode, output


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder that looks like the top one of the checkout, to write into."""
    for name in ("configs", "docs", "scripts", "slurm"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.path.name, marks=MARKS.get(page.path.name, ()))
        for page in FOR_USERS
        if marked(page, "bash")
    ],
)
def test_the_commands_of_a_page_run(page: Page, checkout: Path) -> None:
    script = ["set -euo pipefail"]
    for block in marked(page, "bash"):
        script += [f"echo '=== {block.place}'", block.text]
    code, output = run(["bash", "-c", "\n".join(script)], checkout, {})
    assert code == 0, output
    assert re.search(PROMISED.get(page.path.name, ""), output), output


def test_the_epilog_of_a_page_takes_away_what_that_job_has_left() -> None:
    (block,) = (block for page in FOR_USERS for block in page.blocks if "SLURM_JOB_UID" in block.text)
    user = f"docs-{os.getpid()}"
    left = Path(f"/tmp/ft-{user}")  # as the block says
    try:
        for run_id in ("7.0.0", "7.0.1", "77.0.0"):
            (left / run_id / "n0").mkdir(parents=True)
        code, output = run(["bash", "-euc", block.text], left, {"SLURM_JOB_UID": user, "SLURM_JOB_ID": "7"})
        assert (code, output) == (0, "")
        assert [path.name for path in left.iterdir()] == ["77.0.0"]
    finally:
        shutil.rmtree(left)


@pytest.mark.parametrize(
    "block", [block for page in FOR_USERS for block in marked(page, "python")], ids=lambda block: block.place
)
def test_the_python_of_a_page_runs(block: Block, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(tmp_path / "notify"))
        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        code, output = run([sys.executable, "-c", block.text], tmp_path, environ)
        assert code == 0, output
        if "NOTIFY_SOCKET" in block.text:
            agent.settimeout(10)
            assert agent.recv(100) == b"WATCHDOG=1"
