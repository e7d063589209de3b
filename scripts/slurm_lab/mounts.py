"""The mounts of a machine of the lab. They exist in its own namespace only, so that none is left to unmount."""

import sys
import sysconfig
from pathlib import Path
from typing import Any

from .releases import checkout
from .settings import LOGIN, Layout


def specification(hostname: str, layout: Layout, prefix: Path | None) -> dict[str, Any]:
    """Return init.py's specification for a node or the controller. Make the mount points in the chroot."""
    root = layout.root
    mounts: list[list[str]] = []
    for tree in ("/sys", "/dev"):
        mounts.append(["--rbind", tree, _point(root, Path(tree))])
    mounts.append(["-t", "tmpfs", "-o", "mode=1777", "shm", str(root / "dev/shm")])  # a node's own, as in life
    mounts.append(["-t", "tmpfs", "-o", "mode=755", "run", _point(root, Path("/run"))])
    opened: set[Path] = set()
    for path in (Path("/tmp"), *visible(), layout.cluster):
        closed = closed_to_others(path)
        if closed is not None and closed not in opened:
            opened.add(closed)
            mounts.append(["-t", "tmpfs", "-o", "mode=755", "open", str(root / closed.relative_to("/"))])
        mounts.append(["--bind", "-o", "X-mount.mkdir", str(path), _point(root, path)])
    if prefix is not None:
        mounts.append(["--bind", "-o", "ro", str(prefix), _point(root, prefix)])
    mounts.append(["--bind", str(layout.slurm), _point(root, Path("/etc/slurm"), directory=True)])
    for name in ("hosts", "resolv.conf", "nsswitch.conf"):
        mounts.append(["--bind", str(layout.cluster / name), _point(root, Path("/etc") / name, directory=False)])
    mounts.append(proc(layout))
    folders = [(f"/run/{name}", layout.uid(user)) for name, user in FOLDERS]
    return {"hostname": hostname, "root": str(root), "mounts": mounts, "folders": folders}


def login_specification(layout: Layout) -> dict[str, Any]:
    """Return the login machine's specification: it is the controller with the host's processes."""
    return {"hostname": LOGIN, "root": str(layout.root), "mounts": [proc(layout)], "folders": []}


def proc(layout: Layout) -> list[str]:
    return ["-t", "proc", "proc", _point(layout.root, Path("/proc"))]


FOLDERS = (("munge", "munge"), ("mysqld", "mysql"), ("slurm", "slurm"), ("lock", "root"))


def visible() -> list[Path]:
    """Return the folders of the checkout, the Python installation and the virtual environment."""
    paths = {checkout(), Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    settings = checkout() / ".venv/pyvenv.cfg"
    if settings.is_file():
        values = dict(line.split(" = ", 1) for line in settings.read_text().splitlines() if " = " in line)
        paths.add(Path(values["home"]).resolve().parent)
    if Path("/usr") in paths:  # Debian's own Python: only itself, not the machine's /usr over the chroot's
        paths |= {Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib")).resolve()}
    paths -= {Path("/usr"), Path("/")}
    return sorted(paths)  # a folder before what lies in it


def closed_to_others(path: Path) -> Path | None:
    """Return the uppermost folder on the way to `path` that lies below /tmp, so in the chroot too, and that the
    unprivileged user may not pass, such as a `mktemp -d` with a checkout in it. An empty mount hides it there."""
    way = [folder for folder in reversed(path.parents) if Path("/tmp") in folder.parents]
    return next((folder for folder in way if not folder.stat().st_mode & 0o001), None)


def _point(root: Path, path: Path, *, directory: bool | None = None) -> str:
    """Return the place in the chroot where `path` is mounted, made if it is missing. A link there is replaced."""
    place = root / path.relative_to("/")
    if place.is_symlink():
        place.unlink()
    if path.is_dir() if directory is None else directory:
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    return str(place)
