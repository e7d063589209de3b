"""Who may import whom. The table below is the rule; an import inside a function counts like any other."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = {"ft_supervisor": Path("supervisor"), "ft_slurm": Path("slurm")}
REPOSITORY = Path(__file__).resolve().parent.parent

CORE = {"core", "core.protocol", "core.quorum", "core.placement"}
"""What every part may know of the core: nouns, messages and facts, and who is a member."""
LOWER = CORE | {"config", "store", "process", "run_folder", "journal"}
PAGES = {"history", "report", "status"}
SHELLS = {"agent", "coordinator", "daemon", "launch", "local", "fault", "stacks", "submit", "doctor"}
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),  # words and tables, for all rooms
    "core.protocol": {"core"},
    "core.quorum": {"core", "core.protocol"},
    "core.placement": {"core", "core.protocol", "core.quorum"},
    "core.coordinator": CORE,
    "core.agent": CORE | {"core.coordinator"},  # a rule that ignores a failure is asked on the worker's node
    "core.daemon": CORE | {"core.coordinator"},  # how long the coordinator asks Slurm about a signal
    "core.launch": {"core", "core.protocol"},
    "config": CORE | {"ft_slurm"},  # it knows Slurm's host lists
    "process": CORE,
    "store": CORE,
    "run_folder": CORE | {"config", "process", "ft_slurm"},  # a run is found by the job and by its configuration
    "journal": CORE | {"core.agent", "core.coordinator", "core.daemon", "core.launch", "process", "run_folder"},
    "history": CORE | {"run_folder"},
    "report": CORE | {"history", "process", "run_folder", "ft_slurm"},  # it joins a run with what Slurm says of it
    "status": CORE | {"process", "run_folder", "ft_slurm", "report"},  # both give the same advice
    "evidence": CORE | {"process"},
    "agent": LOWER | {"core.agent", "evidence", "worker_server"},
    "coordinator": LOWER | {"core.coordinator"},
    "daemon": LOWER | {"core.daemon", "core.coordinator", "ft_slurm"},
    "launch": LOWER | {"core.launch", "ft_slurm", "daemon"},  # it starts daemons, and knows where they put files
    "local": LOWER | {"core.launch", "ft_slurm", "daemon", "launch"},
    "fault": LOWER | {"ft_slurm", "daemon", "launch"},  # the folders that daemons make, and launch's srun
    "stacks": LOWER | {"core.coordinator", "evidence", "fault", "daemon"},  # what stands out; how nodes are reached
    "submit": CORE | {"config", "process", "run_folder", "ft_slurm"},  # it looks at what former jobs left
    "doctor": LOWER | {"ft_slurm", "agent", "daemon", "launch", "submit"},  # it looks at what these will do here
    "cli": LOWER | PAGES | SHELLS | {"ft_slurm"},
    "worker": {"worker.state"},  # it runs in the training's process, which may be of another environment
    "worker.state": set(),
    "worker_server": set(),  # torch calls it in the training's process
    "compat": {"worker"},
    "__init__": set(),
    "__main__": {"cli"},
    "ft_slurm": set(),
}
# The core gets time and news as arguments and gives back what is to be done: it has no use for any of these.
NOT_IN_CORE = {
    "asyncio", "concurrent", "contextvars", "ctypes", "datetime", "fcntl", "http", "io", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "queue", "random", "secrets", "select", "selectors", "shutil", "signal",
    "socket", "socketserver", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "torch", "urllib",
    "uuid", "yaml",
}  # fmt: skip
MAY_IMPORT_TORCH = {"agent", "coordinator", "worker.state"}  # and these files:
TORCH_FILES = {"supervisor/ft_supervisor/store/tcp.py", "supervisor/ft_supervisor/worker_server.py"}


def files() -> list[Path]:
    return sorted(
        path for name, root in SOURCES.items() for path in (REPOSITORY / root / name).rglob("*.py") if path.is_file()
    )


def module_name(path: Path) -> str:
    """The dotted name under which `path` is imported."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(path: Path) -> str:
    """The row of the table that `path` falls under."""
    _, package, *inside = path.relative_to(REPOSITORY).with_suffix("").parts
    return package if package == "ft_slurm" else _row(inside)


def _row(inside: list[str]) -> str:
    """The rooms of the core have rows of their own."""
    room = ".".join(inside[:2])
    return room if room in MAY_IMPORT else inside[0]


def imports(path: Path) -> Iterator[str]:
    """The dotted names that `path` imports; of `from a import b` both a and a.b, as b may be a module."""
    package = module_name(path) if path.stem == "__init__" else module_name(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def row_of(imported: str) -> str | None:
    """The row of the table that an imported name belongs to; None for what is not ours."""
    package, _, rest = imported.partition(".")
    if package == "ft_slurm":
        return package
    return _row(rest.split(".")) if package == "ft_supervisor" and rest else None


def offences(path: Path) -> list[str]:
    """What `path` imports and may not, in words."""
    part, found = part_of(path), []
    own = str(path.relative_to(REPOSITORY))
    for imported in imports(path):
        top, row = imported.split(".")[0], row_of(imported)
        if row in MAY_IMPORT and row != part and row not in MAY_IMPORT[part]:
            found.append(f"{own} imports {imported}: {part} may not use {row}")
        if part.partition(".")[0] == "core" and top in NOT_IN_CORE:
            found.append(f"{own} imports {imported}: the core is pure")
        if top == "torch" and part not in MAY_IMPORT_TORCH and own not in TORCH_FILES:
            found.append(f"{own} imports {imported}: only {sorted(MAY_IMPORT_TORCH)} and {sorted(TORCH_FILES)} may")
    return found


def test_imports_point_one_way() -> None:
    paths = files()
    assert len(paths) > 10, "the sources were not found"
    unknown = {part_of(path) for path in paths} - MAY_IMPORT.keys()
    assert not unknown, f"the table says nothing of {sorted(unknown)}"
    assert not [offence for path in paths for offence in offences(path)]


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("core/x.py", "import time"),
        ("core/x.py", "def f() -> None:\n    from os import path"),
        ("core/x.py", "from ft_supervisor.store import keys"),
        ("core/x.py", "from ..process import tree"),
        ("config/x.py", "from ft_supervisor import daemon"),
        ("daemon/x.py", "import torch.distributed as dist"),
        ("store/keys.py", "import torch"),
        ("agent/x.py", "from ft_supervisor.daemon import shell"),
    ],
)
def test_what_is_forbidden_is_found(place: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "REPOSITORY", tmp_path)
    path = tmp_path / "supervisor" / "ft_supervisor" / place
    path.parent.mkdir(parents=True)
    path.write_text(line)
    assert offences(path)


def loaded_by(modules: list[str]) -> set[str]:
    """The top-level names in sys.modules of a fresh interpreter that has imported `modules`."""
    code = f"import sys\nfor name in {modules!r}: __import__(name)\nprint(*{{n.split('.')[0] for n in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_only_those_that_may_load_torch() -> None:
    light = [
        path
        for path in files()
        if part_of(path) not in MAY_IMPORT_TORCH
        and str(path.relative_to(REPOSITORY)) not in TORCH_FILES
        and path.stem != "__main__"
    ]
    assert "torch" not in loaded_by([module_name(path) for path in light])


def test_the_worker_library_needs_the_standard_library_alone() -> None:
    loaded = loaded_by(["ft_supervisor.worker"])
    assert loaded - sys.stdlib_module_names - loaded_by([]) == {"ft_supervisor"}
    assert not loaded & {"asyncio", "concurrent", "ctypes", "dataclasses", "inspect", "multiprocessing"}, "it is slow"
    paths = [path for path in files() if part_of(path) == "worker"]
    inside = {name.split(".")[0] for path in paths for name in imports(path)}
    assert inside <= sys.stdlib_module_names | {"ft_supervisor"}


def test_the_daemon_loads_nothing_that_it_can_do_without() -> None:
    assert not loaded_by(["ft_supervisor.cli.main", "ft_supervisor.daemon.shell"]) & {
        "torch", "numpy", "typer", "click", "rich", "pydantic", "jinja2", "markupsafe"
    }  # fmt: skip


# -- facts before words

MAKE_LINES = {
    "agent/shell.py",
    "coordinator/loop.py",
    "daemon/shell.py",
    "coordinator/snapshot_of.py",
    "process/log.py",
}
NOT_OURS = {"supervisor/ft_supervisor/agent/failures.py"}  # it reads torch's error file
SHOWN = {"reason", "message", "note"}
"""Attributes and names that hold a sentence for people."""
READS = {"startswith", "endswith", "removeprefix", "removesuffix", "split", "partition", "rpartition", "find", "index"}


def sentences_read(tree: ast.AST) -> Iterator[int]:
    """The lines in which a sentence for people is taken apart or searched."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READS:
            if _is_sentence(node.func.value):
                yield node.lineno
        elif isinstance(node, ast.Compare):
            searched = [side for op, side in zip(node.ops, node.comparators, strict=True) if isinstance(op, ast.In)]
            if any(isinstance(side, ast.Attribute) and _is_sentence(side) for side in searched):
                yield node.lineno


def _is_sentence(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr in SHOWN) or (isinstance(node, ast.Name) and node.id in SHOWN)


def test_no_sentence_of_ours_is_read_back() -> None:
    found = [
        f"{own}:{line}"
        for path in files()
        if (own := str(path.relative_to(REPOSITORY))) not in NOT_OURS
        for line in sentences_read(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "carry the fact itself"


def test_lines_are_made_only_where_they_are_written() -> None:
    """What looks on takes facts. The snapshot uses the names of decisions, which people know from the log."""
    makers = {
        str(path.relative_to(REPOSITORY / "supervisor/ft_supervisor"))
        for path in files()
        if "ft_supervisor.process.log_lines" in set(imports(path))
    }
    assert makers == MAKE_LINES


@pytest.mark.parametrize(
    "line", ["x.reason.startswith('a')", "'a' in said.reason", "reason.partition(':')", "each.message.split()"]
)
def test_what_reads_a_sentence_is_found(line: str) -> None:
    assert list(sentences_read(ast.parse(line))) == [1]
