"""Writes and reads the verdict's file. The first writer's verdict stays; it is never changed afterwards."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.core.protocol.model import Again, Ending, Outcome, Verdict
from ft_supervisor.core.words import one_line
from ft_supervisor.process import atomic
from ft_supervisor.run_folder import ownfolder, smallfile

NAME = "verdict.json"
MAX_BYTES = 64 * 1024


@dataclass(frozen=True)
class Content:
    """The contents of the file. `summary`: the line for Slurm's accounting, "" without one; `exit_code`: whether the
    policy allows setting the job's DerivedExitCode (accounting.exit_code). Older files have neither."""

    verdict: Verdict
    run_id: str
    nonce: str
    summary: str = ""
    exit_code: bool = True


class BadVerdictFile(Exception):
    """The file exists, but contains no verdict: another program wrote it."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


def write(
    folder: Path, verdict: Verdict, run_id: str, nonce: str, summary: str = "", *, exit_code: bool = True
) -> Verdict:
    """Write the verdict into `folder` (made if missing) unless one exists; return the verdict that the file then has.

    Readers see a whole file or none. Raises BadVerdictFile if another program's file has the name, and OSError. May
    hang for as long as the file system does.
    """
    ownfolder.make(folder)
    content: dict[str, object] = {
        "outcome": verdict.outcome.value,
        "reason": one_line(verdict.reason),
        "again": verdict.again.value,
        "ending": verdict.ending.value,
        "exit_code": verdict.exit_code,
        "run_id": run_id,
        "nonce": nonce,
        "time": time.time(),
    }
    if summary:
        content["summary"] = one_line(summary)
    if not exit_code:
        content["accounting"] = {"exit_code": False}
    atomic.keep_first(folder / NAME, json.dumps(content).encode() + b"\n")
    return _parse(folder / NAME).verdict


def read(folder: Path, run_id: str | None = None, nonce: str | None = None) -> Verdict | None:
    """Return the verdict in `folder`; None without a file, or if it is of another run or has another nonce.

    None for `run_id` or `nonce` means any. Raises BadVerdictFile, and OSError other than "no such file".
    """
    content = read_all(folder)
    if content is None or (run_id is not None and content.run_id != run_id):
        return None
    return content.verdict if nonce in (None, content.nonce) else None


def read_own(folder: Path, run_id: str, nonce: str) -> Verdict | None:
    """Return the verdict of this run for a caller that acts on it: it must be in a folder of ours, as others' may
    contain anything. None without one. Raises ownfolder.NotOurs, and what `read` raises."""
    try:
        ownfolder.check(folder)
    except FileNotFoundError:
        return None
    return read(folder, run_id, nonce)


def read_all(folder: Path) -> Content | None:
    """Return the contents of the file in `folder`; None without one. Raises BadVerdictFile, and OSError other than "no
    such file"."""
    try:
        return _parse(folder / NAME)
    except FileNotFoundError:
        return None


def _parse(path: Path) -> Content:
    try:
        data = smallfile.read(path, MAX_BYTES)
    except smallfile.NotSmall as error:
        raise BadVerdictFile(path, error.problem) from None
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadVerdictFile(path, f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadVerdictFile(path, "not a JSON object")
    texts = {}
    content = {"again": "open", **content}
    for key in ("outcome", "reason", "again", "run_id", "nonce"):
        if not isinstance(content.get(key), str):
            raise BadVerdictFile(path, f"{key!r} is missing or no text")
        texts[key] = content[key]
    try:
        again, ending = Again(texts["again"]), _ending(content.get("ending"))
        verdict = Verdict(Outcome(texts["outcome"]), one_line(texts["reason"]), again, ending)
    except ValueError as error:
        raise BadVerdictFile(path, f"no verdict: {one_line(str(error), 80)}") from None
    code = content.get("exit_code")
    if type(code) is not int or code != verdict.exit_code:
        said = f"{code!r:.20}" if isinstance(code, int | str) else f"a {type(code).__name__}"
        raise BadVerdictFile(path, f"exit_code is {said}, which is not that of {texts['outcome']}")
    summary, accounting = content.get("summary"), content.get("accounting")
    return Content(
        verdict,
        texts["run_id"],
        texts["nonce"],
        one_line(summary) if isinstance(summary, str) else "",
        not isinstance(accounting, dict) or accounting.get("exit_code") is not False,
    )


def _ending(value: object) -> Ending:
    """Return the ending; UNKNOWN for one that an older file does not have, or a newer version has added."""
    return next((ending for ending in Ending if ending.value == value), Ending.UNKNOWN)
