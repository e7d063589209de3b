"""Notices reach real commands and a real web server; nothing waits for those that hang."""

from __future__ import annotations

import json
import os
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.core.machines import job

from ft_supervisor.coordinator import notifier
from ft_supervisor.coordinator.notices import Notice
from ft_supervisor.coordinator.notifier import ATTEMPTS, Notifier, deliver
from ft_supervisor.core.protocol.model import Cycle, Job
from ft_supervisor.core.protocol.settings import NoticeKind, Notify
from ft_supervisor.process import clock

BOUND = 60.0
RESTART = Notice("1.0.0/restart/0.1", NoticeKind.RESTART, "the training goes on", Cycle(0, 1))
VERDICT = Notice("1.0.0/verdict", NoticeKind.VERDICT, "the job has ended", exit_code=0)


def telling(*notify: Notify) -> Job:
    plain = job()
    return replace(plain, policy='{"name":"pretrain"}', settings=replace(plain.settings, notify=notify))


def appends(path: Path) -> tuple[str, ...]:
    """Return a command that appends what it gets to this file, as one line."""
    code = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"
    return (sys.executable, "-c", code, str(path))


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_command_gets_the_kinds_that_it_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    every, last = tmp_path / "every", tmp_path / "last"
    told = Notifier(telling(Notify((), appends(every)), Notify((NoticeKind.VERDICT,), appends(last))), "n0")
    told.send(RESTART)
    told.send(VERDICT)
    assert told.flush(BOUND)
    assert [notice["kind"] for notice in written(every)] == ["restart", "verdict"]
    (verdict,) = written(last)
    time_of, user = verdict.pop("time"), verdict.pop("user")
    assert abs(time_of - time.time()) < BOUND and user
    assert verdict == {
        "version": 1,
        "id": "1.0.0/verdict",
        "kind": "verdict",
        "job": "pretrain",
        "job_id": "77",
        "run_id": "1.0.0",
        "node": "n0",
        "cycle": None,
        "text": "the job has ended",
        "exit_code": 0,
        "more": 0,
    }


def test_too_many_of_a_kind_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    told = Notifier(telling(Notify((), appends(tmp_path / "file"))), "n0")
    for _ in range(5):
        told.send(RESTART)
    told.send(VERDICT)
    now[0] += notifier.EVERY
    told.send(RESTART)
    told.send(VERDICT)
    assert told.flush(BOUND)
    got = [(notice["kind"], notice["more"]) for notice in written(tmp_path / "file")]
    assert got == [("restart", 0), ("verdict", 0), ("restart", 4), ("verdict", 0)]


@pytest.fixture
def posts(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[bytes], list[int]]]:
    """A web server: its URL, also in $HOOK, what was posted, and the codes that it answers next (200 afterwards)."""
    got: list[bytes] = []
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(answers.pop(0) if answers else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/secret"
        monkeypatch.setenv("HOOK", url)
        yield url, got, answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


HOOK = Notify((), (), "env:HOOK")


@pytest.mark.parametrize("how", ["env", "file"])
def test_a_webhook(how: str, posts: tuple[str, list[bytes], list[int]], tmp_path: Path) -> None:
    url, got, _ = posts
    (tmp_path / "hook").write_text(f"{url}\n")
    webhook = {"env": "env:HOOK", "file": f"file:{tmp_path / 'hook'}"}[how]
    assert deliver(Notify((), (), webhook), b"{}")
    assert got == [b"{}"]


def test_it_is_tried_again(posts: tuple[str, list[bytes], list[int]], capfd: pytest.CaptureFixture[str]) -> None:
    _, got, answers = posts
    answers += [500] * (ATTEMPTS - 1)
    assert deliver(HOOK, b"{}", pause=0.0)
    assert len(got) == ATTEMPTS and capfd.readouterr().err == ""
    answers += [403] * ATTEMPTS
    assert not deliver(HOOK, b"{}", pause=0.0)
    said = capfd.readouterr().err
    assert "event=notice_failed" in said and "HTTP 403" in said and "secret" not in said


@pytest.mark.parametrize(
    ("notify", "said"),
    [
        (Notify((), (), "env:NO_SUCH_VARIABLE"), "no URL there"),
        (Notify((), (), "file:/no/such/file"), "No such file or directory"),
        (Notify((), ("/no/such/command",)), "/no/such/command"),
        (Notify((), ("sh", "-c", "echo that went wrong >&2; exit 3")), "exit code 3: that went wrong"),
        (Notify((), ("sh", "-c", "kill -s 50 $$")), "killed by signal 50"),
    ],
)
def test_what_goes_wrong_is_one_line(notify: Notify, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert not deliver(notify, b"{}", pause=0.0)
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and said in err and "secret" not in err


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:1/secret", "refused"),
        ("http://127.0.0.1:secret/", "no URL there"),
        ("http://127.0.0.1:1/a secret", "no URL there"),
        ("http://127.0.0.1:1/\N{SNOWMAN}secret", "no URL there"),
        ("ftp://127.0.0.1/secret", "no URL there"),
        ("secret", "no URL there"),
        ("", "no URL there"),
    ],
)
def test_a_bad_url_is_not_shown(
    url: str, said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOOK", url)
    assert not deliver(HOOK, b"{}", pause=0.0)
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and said in err and "secret" not in err


def test_a_server_that_does_not_speak_http(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(b"SSH-2.0-secret\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:{server.server_address[1]}/secret")
        try:
            assert not deliver(HOOK, b"{}", pause=0.0)
        finally:
            server.shutdown()
            thread.join()
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and "not an HTTP answer" in err and "secret" not in err


def test_a_command_that_hangs_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notifier, "BOUND", 0.5)
    monkeypatch.setattr(notifier, "ATTEMPTS", 1)
    pipe = tmp_path / "alive"
    hangs = f"(exec 3>{pipe}; sleep 1000) & exec 3>{pipe}; sleep 1000"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert not deliver(Notify((), ("sh", "-c", hangs)), b"{}")
        until = time.monotonic() + BOUND
        while True:  # "" once no process has the pipe open any more
            try:
                if os.read(reader, 1) == b"":
                    break
            except BlockingIOError:
                pass
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        os.close(reader)
    assert "it took more than" in capfd.readouterr().err


def test_one_that_hangs_delays_no_other(tmp_path: Path) -> None:
    file = tmp_path / "file"
    told = Notifier(telling(Notify((), ("sleep", "5")), Notify((), appends(file))), "n0")
    began = time.monotonic()
    told.send(VERDICT)
    while not written(file):
        assert time.monotonic() - began < 4.0
        time.sleep(0.02)


def test_nothing_waits_for_a_command_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "MOST", 1)
    told = Notifier(telling(Notify((), ("sleep", "5"))), "n0")
    began = time.monotonic()
    for _ in range(100):
        told.send(VERDICT)
    assert not told.flush(0.1)
    assert time.monotonic() - began < 4.0
