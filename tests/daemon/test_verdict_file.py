"""The verdict's file: the first one stays, whoever else comes, and nothing else is taken for one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.run_folder import verdict_file

SUCCESS = Verdict(Outcome.SUCCESS, "all workers exited with 0")
FAILED = Verdict(Outcome.FAILED, "budget spent")


def test_the_first_one_stays(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "7.0.0"
    assert verdict_file.write(folder, FAILED, "7.0.0", "abc") == FAILED
    assert verdict_file.write(folder, SUCCESS, "7.0.0", "abc") == FAILED
    assert verdict_file.read(folder, "7.0.0", "abc") == FAILED
    assert [path.name for path in folder.iterdir()] == ["verdict.json"]  # no temporary files
    content = json.loads((folder / "verdict.json").read_text())
    assert content.pop("time") > 1e9
    assert content == {
        "outcome": "failed",
        "reason": "budget spent",
        "again": "open",
        "ending": "unknown",
        "exit_code": 1,
        "run_id": "7.0.0",
        "nonce": "abc",
    }


def test_only_this_run_and_this_nonce_count(tmp_path: Path) -> None:
    assert verdict_file.read(tmp_path / "none") is None
    verdict_file.write(tmp_path, SUCCESS, "7.0.0", "abc")
    assert verdict_file.read(tmp_path) == SUCCESS
    assert verdict_file.read(tmp_path, run_id="7.0.1") is None
    assert verdict_file.read(tmp_path, nonce="") is None
    assert verdict_file.read(tmp_path, nonce="abc") == SUCCESS


def test_what_goes_along_for_the_accounting(tmp_path: Path) -> None:
    verdict_file.write(tmp_path / "a", SUCCESS, "7.0.0", "abc", "success,\n3 cycles", exit_code=False)
    content = verdict_file.read_all(tmp_path / "a")
    assert content == verdict_file.Content(SUCCESS, "7.0.0", "abc", "success, 3 cycles", exit_code=False)
    verdict_file.write(tmp_path / "b", SUCCESS, "7.0.0", "abc")
    assert verdict_file.read_all(tmp_path / "b") == verdict_file.Content(SUCCESS, "7.0.0", "abc", "", exit_code=True)
    assert verdict_file.read_all(tmp_path / "c") is None


@pytest.mark.parametrize("more", [{"summary": 3, "accounting": []}, {"summary": None, "accounting": {"exit_code": 0}}])
def test_what_goes_along_may_be_anything(tmp_path: Path, more: dict[str, object]) -> None:
    (tmp_path / "verdict.json").write_text(json.dumps({**GOOD, **more}))
    content = verdict_file.read_all(tmp_path)
    assert content is not None and (content.summary, content.exit_code) == ("", True)
    assert verdict_file.read(tmp_path) == Verdict(Outcome.SUCCESS, "r")


def test_a_reason_of_many_lines_becomes_one(tmp_path: Path) -> None:
    verdict = verdict_file.write(tmp_path, Verdict(Outcome.FAILED, "a\nb  c" + "x" * 9000), "1", "")
    assert verdict.reason.startswith("a b cx")
    assert len(verdict.reason) == 500


GOOD = {"outcome": "success", "reason": "r", "exit_code": 0, "run_id": "1", "nonce": "", "time": 1.0}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 50_000, "not JSON"),
        (b"0", "not a JSON object"),
        (json.dumps({**GOOD, "outcome": "victory"}).encode(), "'victory' is not a valid Outcome"),
        (json.dumps({**GOOD, "outcome": "failed"}).encode(), "exit_code is 0, which is not that of failed"),
        (json.dumps({**GOOD, "reason": None}).encode(), "'reason' is missing or no text"),
        (b" " * (verdict_file.MAX_BYTES + 1), "longer than"),
    ],
)
def test_garbage_is_an_error_and_no_verdict(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "verdict.json").write_bytes(content)
    with pytest.raises(verdict_file.BadVerdictFile, match="verdict.json: .*" + problem):
        verdict_file.read(tmp_path)
    with pytest.raises(verdict_file.BadVerdictFile):
        verdict_file.write(tmp_path, SUCCESS, "1", "")
    assert (tmp_path / "verdict.json").read_bytes() == content


@pytest.mark.parametrize("what", ["pipe", "folder", "device"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, what: str) -> None:
    path = tmp_path / "verdict.json"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(verdict_file.BadVerdictFile, match=r"verdict.json: no regular file"):
        verdict_file.read(tmp_path)
    with pytest.raises(verdict_file.BadVerdictFile):
        verdict_file.write(tmp_path, SUCCESS, "1", "")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").touch()
    os.truncate(tmp_path / "verdict.json", 2**40)
    with pytest.raises(verdict_file.BadVerdictFile, match=r"verdict.json: longer than"):
        verdict_file.read(tmp_path)


WRITER = """
import sys
from pathlib import Path
from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.run_folder import verdict_file
print("ready", flush=True)
sys.stdin.readline()
for number in range(30):
    verdict = verdict_file.write(Path(sys.argv[1]) / str(number), Verdict(Outcome.FAILED, sys.argv[2]), "1", "")
    print(verdict.reason)
"""


def test_two_writers_at_once_agree(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("first", "second")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    said = [writer.communicate(timeout=60)[0].split() for writer in writers]
    assert len(said[0]) == 30
    assert said[0] == said[1]
