"""Makes a release of a Slurm that was built by hand and installed below its own folder (`configure --prefix`)."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path

from .errors import LabError
from .releases import OTHERS, RELEASES, Release, modern, old

BASE = "trixie"
"""The Debian below it. Programs that were linked on an older Debian run there, too."""
LIBRARIES = (
    *("libmunge2", "libmariadb3", "libjson-c5", "libhwloc15", "libnuma1", "liblz4-1", "libpam0g", "libyaml-0-2"),
    *("libdbus-1-3", "libcurl4", "libjwt2", "liblua5.4-0"),
)
"""Libraries to which it may be linked. `up` names any others that it needs."""
HEADER = "include/slurm/slurm_version.h"
DAEMONS = ("sbin/slurmctld", "sbin/slurmd", "sbin/slurmdbd", "sbin/slurmstepd")
COMMANDS = ("bin/srun", "bin/sbatch", "bin/scontrol", "bin/sacct", "bin/sacctmgr")
PLUGINS = ("auth_munge.so", "accounting_storage_mysql.so")
FIRST_MODERN = 0x170B00
"""23.11, as SLURM_VERSION_NUMBER has it."""


def find(slurm: str | Path) -> Release:
    """Return one of RELEASES by its name, or the Slurm below a folder. Raises LabError when none is installed there."""
    return RELEASES[slurm] if isinstance(slurm, str) else _installed(slurm.absolute())


def _installed(prefix: Path) -> Release:
    if missing := [name for name in (*DAEMONS, *COMMANDS, HEADER) if not (prefix / name).exists()]:
        raise LabError(f"no Slurm is installed below {prefix}: there is no {', no '.join(missing)}")
    if absent := [name for name in PLUGINS if not _plugin(prefix, name)]:
        raise LabError(f"the Slurm below {prefix} was built without {' and '.join(absent)}, which the lab needs")
    if prefix in (Path("/"), Path("/usr")):
        raise LabError(f"{prefix} would hide the lab's own: give Slurm a folder of its own (configure --prefix)")
    number = version_number((prefix / HEADER).read_text())
    version = f"{number >> 16}.{number >> 8 & 0xFF:02}"
    like = modern(version, BASE) if number >= FIRST_MODERN else old(version, BASE)
    name = f"prefix-{hashlib.sha256(bytes(prefix)).hexdigest()[:8]}"
    return replace(like, name=name, patch=str(number & 0xFF), packages=(*OTHERS, *LIBRARIES), prefix=prefix)


def version_number(header: str) -> int:
    """SLURM_VERSION_NUMBER of slurm_version.h: a byte each for year, month and patch. Raises LabError."""
    found = re.search(r"^#define\s+SLURM_VERSION_NUMBER\s+(0x[0-9a-f]+)\s*$", header, re.MULTILINE)
    if found is None:
        raise LabError(f"{HEADER} has no SLURM_VERSION_NUMBER")
    return int(found[1], 16)


def linked(prefix: Path) -> list[str]:
    """Return the files whose libraries have to be in the chroot, for ldd(1)."""
    plugins = [found for name in PLUGINS for found in _plugin(prefix, name)]
    return [str(path) for path in (*(prefix / name for name in (*DAEMONS, *COMMANDS)), *plugins)]


def missing_libraries(said: str) -> list[str]:
    """Return the libraries, and versions of them, that ldd(1) has not found, each once."""
    lines = (line.partition(": ")[2] or line for line in said.splitlines() if "not found" in line)
    return sorted({line.partition(" not found")[0].removesuffix(" =>").strip() for line in lines})


def _plugin(prefix: Path, name: str) -> list[Path]:
    return sorted(prefix.glob(f"lib*/slurm/{name}"))
