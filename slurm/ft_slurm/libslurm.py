"""Slurm's own library: where it is, and its one call that no command offers, made in a process of its own."""

import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from ft_slurm import command, complete_job
from ft_slurm.errors import Refused, Unanswered

NAME = "libslurmfull.so"
"""Beside the plug-ins. Not the public libslurm.so: plug-ins do not load with it, and it ends the process (measured)."""
LIBRARY_FOLDERS: tuple[str, ...] = (
    *("/usr/lib64", "/usr/lib", "/usr/local/lib64", "/usr/local/lib", "/opt/slurm/lib64", "/opt/slurm/lib"),
    f"/usr/lib/{sysconfig.get_config_var('MULTIARCH') or ''}",
)
_PACKAGED = ("slurm", "slurm-wlm")


def find(plugin_dir: str, environ: Mapping[str, str]) -> Path | None:
    """The library, first of all in slurm.conf's PluginDir (folders separated by colons); None if it is not here."""
    folders = [*map(Path, filter(None, plugin_dir.split(":"))), *_usual(environ)]
    return next((folder / NAME for folder in folders if (folder / NAME).is_file()), None)


def _usual(environ: Mapping[str, str]) -> Iterator[Path]:
    """Where sites put it: $SLURM_LIB_DIR, beside the commands, and where packages do."""
    tops = [environ["SLURM_LIB_DIR"]] if environ.get("SLURM_LIB_DIR") else []
    if scontrol := shutil.which("scontrol", path=environ.get("PATH")):
        prefix = Path(scontrol).resolve().parent.parent
        tops += [f"{prefix}/lib64", f"{prefix}/lib"]
    for top in [*tops, *LIBRARY_FOLDERS]:
        yield Path(top)
        yield from (Path(top) / name for name in _PACKAGED)


def complete(library: Path, job_id: int, exit_code: int, environ: Mapping[str, str]) -> None:
    """Tells slurmctld that the job has ended with this code. Only its owner may; all that still runs in it is killed.

    Raises Unanswered when trying again may help, Refused when not.
    """
    program = [sys.executable, "-I", "-S", str(Path(complete_job.__file__).resolve())]
    done = command.run([*program, str(library), str(job_id), str(exit_code)], complete_job.TIMEOUT, environ)
    said, _, why = (done.stdout.strip().splitlines() or [""])[-1].partition(": ")
    if said == "completed":
        return
    if said == "unanswered":
        raise Unanswered(f"slurm_complete_job: {why}")
    if said in ("refused", "unusable"):
        raise Refused(f"slurm_complete_job: {why}")
    # Also for want of a configuration, which at sites without a slurm.conf on the nodes comes from slurmctld.
    raise Unanswered(f"{library} ended its process: {done.problem}")
