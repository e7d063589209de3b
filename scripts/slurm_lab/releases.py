"""The releases of Slurm with the Debian of each, and the lab's folders."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from .errors import LabError

LAB_USER = "ftlab"
LAB_UID = 64042  # outside the ranges that people, systemd and Debian's packages use
SLURM_UID = 64030  # Debian's
CLUSTERS = 4
"""The most clusters of one release that may be up at once."""

SLURM = ("slurmctld", "slurmd", "slurmdbd", "slurm-client", "slurm-wlm-mysql-plugin")
# Debian's old library names are still provided by the packages of the 64-bit time_t transition. The libraries are
# what a Python from outside the chroot links to.
OTHERS = (
    *("munge", "mariadb-server"),
    *("iproute2", "nftables", "procps", "libffi8", "libssl3", "libsqlite3-0", "libreadline8", "libbz2-1.0", "liblzma5"),
    *("zlib1g", "libexpat1", "libuuid1", "libncursesw6", "libstdc++6"),
)


@dataclass(frozen=True, kw_only=True)
class Pin:
    """A package of which the lab needs this version (with * as in a shell) from this suite."""

    package: str
    version: str
    suite: str


@dataclass(frozen=True, kw_only=True)
class Release:
    """One Slurm: of a Debian suite, or, on that suite, of the folder `prefix`.

    `name` is that of its folder in the lab's, `version` are the first two numbers. The suite must have the package
    `expected`; the files of `replaced` are put over those that the suite has.
    """

    name: str
    version: str
    patch: str = ""
    suite: str
    accounting_flags: str
    cgroup_conf: str
    has_block_topology: bool
    packages: tuple[str, ...] = (*SLURM, *OTHERS)
    expected: Pin | None = None
    replaced: Pin | None = None
    prefix: Path | None = None

    def __str__(self) -> str:
        return self.version if self.prefix is None else f"{self.version}.{self.patch} of {self.prefix}"

    @property
    def recipe(self) -> str:
        """A checksum that changes whenever a chroot that was built before is no longer the right one."""
        pins = [f"{pin.package}={pin.version}" for pin in (self.expected, self.replaced) if pin is not None]
        parts = (self.suite, *self.packages, LAB_USER, str(LAB_UID), *pins)
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:8]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the Slurm of a folder needs in each process, to be put before present values."""
        if self.prefix is None:
            return {}
        libraries = sorted({str(found.parent) for found in self.prefix.glob("lib*/libslurm.so.*")})
        return {
            "PATH": f"{self.prefix}/sbin:{self.prefix}/bin",
            "LD_LIBRARY_PATH": ":".join(libraries),
            "SLURM_CONF": "/etc/slurm/slurm.conf",
        }


def old(version: str, suite: str) -> Release:
    return Release(
        name=version,
        version=version,
        suite=suite,
        accounting_flags="job_comment",
        cgroup_conf="",
        has_block_topology=False,
    )


def modern(version: str, suite: str, *, expected: Pin | None = None, replaced: Pin | None = None) -> Release:
    return Release(
        name=version,
        version=version,
        suite=suite,
        accounting_flags="job_comment,job_extra",
        cgroup_conf="CgroupPlugin=disabled\n",
        has_block_topology=True,
        expected=expected,
        replaced=replaced,
    )


RELEASES = {
    "26.05": modern(
        "26.05",
        "forky",
        expected=Pin(package="slurmctld", version="26.05.*", suite="forky"),
        # With 11.8.9, forky's, slurmdbd gets error 5027 ("Number of columns in result") for an answer and gives up.
        replaced=Pin(package="libmariadb3", version="1:11.8.6-*", suite="trixie"),
    ),
    "24.11": modern("24.11", "trixie"),
    "22.05": old("22.05", "bookworm"),
}
DEFAULT_RELEASE = "24.11"


def lab_dir() -> Path:
    """Return the folder of chroots, logs and state: $FT_SLURM_LAB_DIR, or /var/lib/ft-slurm-lab."""
    return Path(os.environ.get("FT_SLURM_LAB_DIR") or "/var/lib/ft-slurm-lab").absolute()


def cluster_number() -> int:
    """Return which cluster of each release is meant, from 0 to CLUSTERS - 1: $FT_SLURM_LAB_CLUSTER, or 0.

    Clusters of one release share its chroot and /tmp, and nothing else. Raises LabError for any other number.
    """
    text = os.environ.get("FT_SLURM_LAB_CLUSTER") or "0"
    if text not in map(str, range(CLUSTERS)):
        raise LabError(f"FT_SLURM_LAB_CLUSTER={text}: from 0 to {CLUSTERS - 1}")
    return int(text)


def checkout() -> Path:
    """Return the checkout that this file belongs to. It has the same path inside the lab."""
    return Path(__file__).resolve().parents[2]
