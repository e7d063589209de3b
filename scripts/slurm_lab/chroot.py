"""Builds the chroot of one Slurm release, once; a chroot that is kept between runs is complete."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import archive
from .errors import LabError
from .releases import LAB_UID, LAB_USER, SLURM_UID, Release

BUILD_TIMEOUT = 1800.0  # seconds; two minutes are usual, a slow mirror takes longer


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold an exclusive lock on the file for as long as the block runs, and yield its descriptor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def ensure(release: Release, base: Path) -> Path:
    """Return the chroot's folder below base, built if it is missing. Raises LabError with the build's last lines."""
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
    """Remove interrupted builds and chroots of other recipes. Mounts in them exist only in their own namespaces."""
    for old in (*base.glob("root-*"), base / "partial"):
        if old.exists():
            subprocess.run(["rm", "-rf", "--one-file-system", old], check=True)


def _build(release: Release, target: Path, log: Path, lock: int) -> None:
    if shutil.which("mmdebstrap") is None:
        archive.install("mmdebstrap")
    with tempfile.TemporaryDirectory(prefix="ft-slurm-lab-") as temporary, log.open("wb") as output:
        options = Path(temporary) / "apt.conf"
        options.write_text(archive.settings())
        replacement = _pinned(release, Path(temporary))
        command = _mmdebstrap(release, target, options, replacement)
        try:
            # In a mount namespace of its own, so that an interrupted build leaves nothing mounted, and holding the
            # lock, so that no second build starts beside one whose parent is gone.
            done = subprocess.run(
                ["unshare", "--mount", "--propagation", "private", *command],
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
        raise LabError(f"building the chroot for Slurm {release} failed; the end of {log}:\n{end}")
    # At some sites folders below /root are bound into it, and an unprivileged user must be able to reach them.
    (target / "root").chmod(0o755)


def _pinned(release: Release, folder: Path) -> Path | None:
    """Return the file of the replaced package, if there is one. Raises ArchiveMoved before anything else is fetched."""
    pins = [pin for pin in (release.expected, release.replaced) if pin is not None]
    if not pins:
        return None
    found = archive.Archive(folder / "apt", dict.fromkeys(pin.suite for pin in pins))
    for pin in pins:
        found.version(pin)
    return None if release.replaced is None else found.download(release.replaced)


def _mmdebstrap(release: Release, target: Path, options: Path, replacement: Path | None) -> list[str]:
    user = f"--uid {LAB_UID} --create-home --shell /bin/bash {LAB_USER}"
    command = ["mmdebstrap", "--mode=root", "--variant=essential", "--format=directory", f"--aptopt={options}"]
    command += [f"--include={','.join(release.packages)}", "--dpkgopt=path-exclude=/usr/share/man/*"]
    command += ["--dpkgopt=path-exclude=/usr/share/locale/*", f'--customize-hook=chroot "$1" useradd {user}']
    if release.prefix is not None:  # otherwise Slurm's packages make it
        command.append(f'--customize-hook=chroot "$1" useradd --system --user-group --uid {SLURM_UID} slurm')
    if replacement is not None:
        command.append(f'--customize-hook=dpkg-deb --extract {replacement} "$1"')
    # Not every MariaDB makes its empty database when its package is installed.
    install = 'chroot "$1" mariadb-install-db --force --user=mysql --datadir=/var/lib/mysql --skip-test-db'
    command.append(f'--customize-hook=test -d "$1/var/lib/mysql/mysql" || {install}')
    return [*command, release.suite, str(target), archive.mirror()]
