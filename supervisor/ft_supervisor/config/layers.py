"""Finds the policy files that take part, and their order."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.validator import Setting

SYSTEM = Path("/etc/ft-supervisor")
_CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Layers:
    """`files` in the order in which later wins; `note` says in one line why the cluster has none."""

    cluster: str | None
    files: tuple[Path, ...]
    note: str | None


def find(asked: Setting | None, environ: Mapping[str, str], system: Path) -> Layers:
    """Returns the default policy and the cluster's; `asked` is the setting of `cluster`, None for auto.

    The cluster's is NAME.yaml in the folders of $FT_SUPERVISOR_POLICY_PATH, then in `system`/clusters, then, when this
    runs from a source checkout, in the checkout's configs/clusters: a wheel has no such folder. A cluster that
    `asked` names must have one, or `ConfigError` is raised.
    """
    default = system / "default.yaml"
    files = (default,) if exists(default) else ()
    base = str(default) if files else "the built-in policy"
    name = asked.value if asked else "auto"
    if name == "none":
        return Layers(None, files, f"cluster: none, so {base} applies")
    if name == "auto":
        name = environ.get("SLURM_CLUSTER_NAME", "")
        if not name:
            return Layers(None, files, f"cluster: auto, but SLURM_CLUSTER_NAME is not set, so {base} applies")
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            raise ConfigError("environment", "SLURM_CLUSTER_NAME", f"{name!r} is no file name", "set cluster: none")
        asked = None
    folders = _folders(environ, system)
    for folder in folders:
        if exists(folder / f"{name}.yaml"):
            return Layers(name, (*files, folder / f"{name}.yaml"), None)
    searched = f"no {name}.yaml in {', '.join(str(folder) for folder in folders)}"
    if asked:
        right = "write one, set FT_SUPERVISOR_POLICY_PATH, or say cluster: auto or none"
        raise ConfigError(asked.where, "cluster", searched, right)
    return Layers(name, files, f"cluster: auto is {name}, but there is {searched}, so {base} applies")


def _folders(environ: Mapping[str, str], system: Path) -> list[Path]:
    folders = [Path(part) for part in environ.get("FT_SUPERVISOR_POLICY_PATH", "").split(":") if part]
    folders.append(system / "clusters")
    if (_CHECKOUT / "pyproject.toml").is_file() and (_CHECKOUT / "configs" / "clusters").is_dir():
        folders.append(_CHECKOUT / "configs" / "clusters")
    return folders


def exists(path: Path) -> bool:
    """Says whether a file is there. One that cannot be read is there: reading it reports the error."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):  # ValueError: a zero byte, which reading the file will complain of
        return True
    return True
