"""Finds Slurm's own library, and makes the one call that no command offers, in a process of its own."""

import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from ft_slurm import command, complete_job
from ft_slurm.errors import Refused, Unanswered

NAME = "libslurmfull.so"
"""Its file name. It lies beside the plug-ins. The public libslurm.so does not do: plug-ins do not load with it, and it
ends the process (measured)."""
LIBRARY_FOLDERS: tuple[str, ...] = (
    *("/usr/lib64", "/usr/lib", "/usr/local/lib64", "/usr/local/lib", "/opt/slurm/lib64", "/opt/slurm/lib"),
    f"/usr/lib/{sysconfig.get_config_var('MULTIARCH') or ''}",
)
_PACKAGED = ("slurm", "slurm-wlm")


def find(plugin_dir: str, environ: Mapping[str, str]) -> Path | None:
    """Return the library's path; None where there is none. slurm.conf's PluginDir (folders separated by colons) comes
    first."""
    folders = [*map(Path, filter(None, plugin_dir.split(":"))), *_usual(environ)]
    return next((folder / NAME for folder in folders if (folder / NAME).is_file()), None)


def _usual(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders where sites put it: $SLURM_LIB_DIR, beside the commands, and the folders of packages."""
    tops = [environ["SLURM_LIB_DIR"]] if environ.get("SLURM_LIB_DIR") else []
    if scontrol := shutil.which("scontrol", path=environ.get("PATH")):
        prefix = Path(scontrol).resolve().parent.parent
        tops += [f"{prefix}/lib64", f"{prefix}/lib"]
    for top in [*tops, *LIBRARY_FOLDERS]:
        yield Path(top)
        yield from (Path(top) / name for name in _PACKAGED)


def complete(library: Path, job_id: int, exit_code: int, environ: Mapping[str, str]) -> None:
    """End the job with this exit code by slurm_complete_job. Only its owner may; all that still runs in it is killed.

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
    # The reason can be a missing configuration: at sites without a slurm.conf on the nodes slurmctld sends it.
    raise Unanswered(f"{library} ended its process: {done.problem}")
