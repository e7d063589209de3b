"""The daemon's files: its coordinator's address, verdicts, journals, and the node's own folder."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from ft_supervisor.core.protocol.model import Job, Node, Verdict
from ft_supervisor.daemon import network
from ft_supervisor.daemon.identity import local_folder
from ft_supervisor.journal import journal
from ft_supervisor.process import atomic
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.process.log import file_failed
from ft_supervisor.run_folder import ownfolder, run_index, runs, verdict_file

SHARED_BOUND = 2.0
"""Seconds after which a shared file system is not waited for any more."""


def make_local_folder(folder: Path) -> None:
    """Make the node's own folder, below one in /tmp that only this user can write to. Raises OSError."""
    _make_own(folder.parent.parent)
    folder.mkdir(parents=True, exist_ok=True)


def claim_run(run_id: str) -> bool:
    """Make the run's folder of this machine's nodes. Returns False if it exists: another run has this id.

    Raises OSError.
    """
    folder = local_folder(run_id)
    _make_own(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _make_own(base: Path) -> None:
    base.mkdir(mode=0o700, exist_ok=True)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{base} must be a directory of uid {os.getuid()} that only it can write to")


def note_run(job: Job, environ: Mapping[str, str]) -> None:
    """Write the job into the user's index of runs. Raises OSError. May hang for as long as the file system does."""
    wanted = runs.parse(job.run_id)
    assert wanted is not None
    entry = run_index.IndexEntry(wanted.job_id, Path(job.run_folder).parent)
    run_index.note(environ, environ.get("SLURM_CLUSTER_NAME"), entry, run_index.task_name(environ))


def write_address(job: Job, node: Node, port: int) -> None:
    """Write <run folder>/addr/<infra_rank>: the store's numeric address, for peers that cannot resolve names.

    Raises OSError. May hang for as long as the file system does.
    """
    folder = ownfolder.make(Path(job.run_folder), "addr")
    address = {"host": network.numeric_address(node.addr), "port": port}
    atomic.replace(folder / str(node.infra_rank), f"{json.dumps(address)}\n".encode())


def write_verdict(job: Job, verdict: Verdict, shared: bool, summary: str = "") -> list[Background[Verdict]]:
    """Begin to write the verdict's copies; errors are logged. `summary`: the line for Slurm's accounting, if known."""

    def write(folder: str) -> Verdict:
        exit_code = job.settings.accounting.exit_code
        return verdict_file.write(Path(folder), verdict, job.run_id, job.nonce, summary, exit_code=exit_code)

    folders = [job.local_folder, job.run_folder] if shared else [job.local_folder]
    return [Background(f"verdict file in {folder}", partial(write, folder), file_failed) for folder in folders]


def look_for_verdict(job: Job) -> Background[Verdict | None]:
    """Begin to read the run's verdict, for a node that has no coordinator to get it from."""
    folder = Path(job.run_folder)
    return Background("reading the verdict's file", lambda: verdict_file.read_own(folder, job.run_id, job.nonce))


def result(looking: Background[Verdict | None]) -> Verdict | None:
    """Return the verdict; None without a file, or, with a line in the log, if it cannot be read in time."""
    try:
        return looking.result(SHARED_BOUND)
    except (OSError, Hangs, verdict_file.BadVerdictFile) as error:
        file_failed(looking.what, error)
        return None


def publish_journals(job: Job, node: Node) -> Background[None]:
    """Begin to copy this node's journals to <run folder>/journal/<node>/; errors are logged."""
    run_folder = Path(job.run_folder)
    return Background("journals", lambda: journal.publish(Path(job.local_folder), run_folder, node.name), file_failed)
