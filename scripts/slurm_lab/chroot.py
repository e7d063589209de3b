"""Builds the chroot of one Slurm release, once; what is kept between runs is whole or not there at all."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import LabError
from .releases import LAB_UID, LAB_USER, PACKAGES, Release

BUILD_TIMEOUT = 1800.0  # seconds; two minutes are usual, a slow mirror takes longer


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Holds an exclusive lock on the file for as long as the block runs, and yields its descriptor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def ensure(release: Release, base: Path) -> Path:
    """The chroot's folder below base, built if it is not there yet. Raises LabError with the end of the build's log."""
    root = base / f"root-{release.recipe}"
    if root.is_dir():
        return root
    with locked(base / "build.lock") as lock:
        if not root.is_dir():
            _remove_rests(base)
            partial = base / "partial"
            _build(release, partial, base / "build.log", lock)
            partial.rename(root)
    return root


def _remove_rests(base: Path) -> None:
    """Interrupted builds and chroots of other recipes; nothing is mounted in them outside their own namespaces."""
    for old in (*base.glob("root-*"), base / "partial"):
        if old.exists():
            subprocess.run(["rm", "-rf", "--one-file-system", old], check=True)


def _build(release: Release, target: Path, log: Path, lock: int) -> None:
    if shutil.which("mmdebstrap") is None:
        _apt_get("update")
        _apt_get("install", "-y", "--no-install-recommends", "mmdebstrap")
    with tempfile.TemporaryDirectory(prefix="ft-slurm-lab-") as temporary, log.open("wb") as output:
        options = Path(temporary) / "apt.conf"
        options.write_text(_apt_settings())
        try:
            # In a mount namespace of its own, so that an interrupted build leaves nothing mounted, and holding the
            # lock, so that nobody builds beside one whose parent is gone.
            done = subprocess.run(
                ["unshare", "--mount", "--propagation", "private", *_mmdebstrap(release, target, options)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                timeout=BUILD_TIMEOUT,
            )
        except subprocess.TimeoutExpired as error:
            raise LabError(f"building {target} took longer than {BUILD_TIMEOUT:.0f} s; see {log}") from error
    if done.returncode:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise LabError(f"building the chroot for Slurm {release.version} failed; the end of {log}:\n{end}")
    # Bound into it are folders below /root at some sites, which an unprivileged user must be able to reach.
    (target / "root").chmod(0o755)


def _mmdebstrap(release: Release, target: Path, options: Path) -> list[str]:
    user = f"--uid {LAB_UID} --create-home --shell /bin/bash {LAB_USER}"
    command = ["mmdebstrap", "--mode=root", "--variant=essential", "--format=directory", f"--aptopt={options}"]
    command += [f"--include={','.join(PACKAGES)}", "--dpkgopt=path-exclude=/usr/share/man/*"]
    command += ["--dpkgopt=path-exclude=/usr/share/locale/*", f'--customize-hook=chroot "$1" useradd {user}']
    # Not every MariaDB makes its empty database when its package is installed.
    install = 'chroot "$1" mariadb-install-db --force --user=mysql --datadir=/var/lib/mysql --skip-test-db'
    command.append(f'--customize-hook=test -d "$1/var/lib/mysql/mysql" || {install}')
    command += [release.suite, str(target)]
    return command + _mirror()


def _mirror() -> list[str]:
    """The Debian mirror that apt is set up with, as mmdebstrap's last argument; its own default where apt has none."""
    listed = _output("apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT)", "Created-By: Packages")
    for line in listed.splitlines():
        address, _, component = line.partition(" ")
        if address.rstrip("/").endswith("/debian") and component == "main":
            return [address]
    return []


def _apt_settings() -> str:
    """The machine's own settings of how apt fetches (proxies, checks of dates, languages), in apt.conf's language."""
    lines = _output("apt-config", "dump").splitlines()
    kept = [line for line in lines if line.startswith("Acquire::") and not line.endswith('"";')]
    return "\n".join([*kept, 'Acquire::Retries "3";', ""])


def _apt_get(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-o", "Acquire::Retries=3", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"apt-get {' '.join(arguments)} failed: {done.stderr.strip()}")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
