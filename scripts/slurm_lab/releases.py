"""Which Slurm comes from which Debian, and where the lab keeps its things."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

LAB_USER = "ftlab"
LAB_UID = 64042  # outside the ranges that people, systemd and Debian's packages use

# Debian's old library names are still provided by the packages of the 64-bit time_t transition. The libraries are
# what a Python from outside the chroot links to.
PACKAGES = (
    *("slurmctld", "slurmd", "slurmdbd", "slurm-client", "slurm-wlm-mysql-plugin", "munge", "mariadb-server"),
    *("iproute2", "nftables", "procps", "libffi8", "libssl3", "libsqlite3-0", "libreadline8", "libbz2-1.0", "liblzma5"),
    *("zlib1g", "libexpat1", "libuuid1", "libncursesw6", "libstdc++6"),
)


@dataclass(frozen=True, kw_only=True)
class Release:
    """One Slurm of one Debian suite."""

    version: str
    suite: str
    accounting_flags: str
    cgroup_conf: str
    has_block_topology: bool

    @property
    def recipe(self) -> str:
        """Changes whenever a chroot that was built before is no longer the right one."""
        return hashlib.sha256(" ".join((self.suite, *PACKAGES, LAB_USER, str(LAB_UID))).encode()).hexdigest()[:8]


def _modern(version: str, suite: str) -> Release:
    return Release(
        version=version,
        suite=suite,
        accounting_flags="job_comment,job_extra",
        cgroup_conf="CgroupPlugin=disabled\n",
        has_block_topology=True,
    )


RELEASES = {
    "24.11": _modern("24.11", "trixie"),
    "22.05": Release(
        version="22.05",
        suite="bookworm",
        accounting_flags="job_comment",
        cgroup_conf="",
        has_block_topology=False,
    ),
    "testing": _modern("testing", "testing"),
}
DEFAULT_RELEASE = "24.11"


def lab_dir() -> Path:
    """The folder of chroots, logs and state: $FT_SLURM_LAB_DIR, or /var/lib/ft-slurm-lab."""
    return Path(os.environ.get("FT_SLURM_LAB_DIR") or "/var/lib/ft-slurm-lab").absolute()


def checkout() -> Path:
    """The checkout that this file belongs to; visible at the same path inside the lab."""
    return Path(__file__).resolve().parents[2]
