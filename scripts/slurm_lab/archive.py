"""Debian's archive as the machine's own apt sees it: its mirror, its settings, and the versions of a suite."""

import os
import subprocess
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from .errors import ArchiveMoved, LabError
from .releases import Pin

KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
TIMEOUT = 600.0  # seconds for one call of apt-get


def mirror() -> str:
    """Return the Debian mirror that apt is set up with. Raises LabError where it has none."""
    if not (found := _mirrors()):
        apt_get("update")  # apt lists none before the first one
        found = _mirrors()
    if not found:
        raise LabError("apt has no Debian mirror on this machine: see sources.list(5)")
    return found[0]


def _mirrors() -> list[str]:
    listed = _output("apt-get", "indextargets", "--format", "$(COMPONENT) $(REPO_URI)", "Created-By: Packages")
    rows = (line.partition(" ") for line in listed.splitlines())
    return [uri for component, _, uri in rows if component == "main" and uri.rstrip("/").endswith("/debian")]


def settings() -> str:
    """Return the machine's settings for downloads (proxies, checks of dates, languages), in apt.conf's language."""
    lines = _output("apt-config", "dump").splitlines()
    kept = [line for line in lines if line.startswith("Acquire::") and not line.endswith('"";')]
    return "\n".join([*kept, 'Acquire::Retries "3";', ""])


def install(package: str) -> None:
    """Install a package on this machine. Raises LabError."""
    apt_get("update")
    apt_get("install", "-y", "--no-install-recommends", package)


def apt_get(*arguments: str, cwd: Path | None = None) -> None:
    """Run apt-get. Raises LabError with its error text."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-o", "Acquire::Retries=3", *arguments]
    try:
        done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise LabError(f"apt-get {' '.join(arguments)} took longer than {TIMEOUT:.0f} s") from error
    if done.returncode:
        raise LabError(f"apt-get {' '.join(arguments)} failed: {done.stderr.strip()}")


class Archive:
    """The package lists of these suites, in a folder of our own: the machine's are left alone."""

    def __init__(self, folder: Path, suites: Iterable[str]) -> None:
        self._folder = folder
        keys = f"[signed-by={KEYS}] " if KEYS.exists() else ""
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "sources.list").write_text("".join(f"deb {keys}{mirror()} {suite} main\n" for suite in suites))
        self._options = (
            f"-o=Dir::State::Lists={folder}/lists",
            f"-o=Dir::Cache={folder}/cache",
            f"-o=Dir::Etc::SourceList={folder}/sources.list",
            f"-o=Dir::Etc::SourceParts={folder}/none",
            "-o=APT::Update::Error-Mode=any",  # a list that cannot be fetched is not an empty one
            "-o=APT::Sandbox::User=root",  # the folder is root's alone
        )
        apt_get(*self._options, "update")

    def version(self, pin: Pin) -> str:
        """Return the pin's version in full. Raises ArchiveMoved when the suite has it no more."""
        return fitting(_output("apt-cache", *self._options, "madison", pin.package), pin)

    def download(self, pin: Pin) -> Path:
        """Download the package's file into our folder. Raises ArchiveMoved and LabError."""
        apt_get(*self._options, "download", f"{pin.package}={self.version(pin)}", cwd=self._folder)
        (file,) = self._folder.glob(f"{pin.package}_*.deb")
        return file


def fitting(madison: str, pin: Pin) -> str:
    """Return the version in full, from apt-cache(8)'s table of the package. Raises ArchiveMoved."""
    rows = [[field.strip() for field in line.split("|")] for line in madison.splitlines()]
    found = [version for _, version, source in rows if f" {pin.suite}/" in source]
    if not (wanted := [version for version in found if fnmatchcase(version, pin.version)]):
        has = f"has {', '.join(found)}" if found else "has none"
        raise ArchiveMoved(f"Debian {pin.suite} {has} of {pin.package}, not {pin.version}")
    return wanted[0]


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
