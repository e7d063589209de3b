"""Writes what torch has recorded of this process's collectives, before its groups are aborted.

torch keeps the record where TORCH_FR_BUFFER_SIZE is set, and writes it when its watchdog finds a timeout. A restart in
the process comes before that. The agent names the file's beginning for each cycle; `torchfrtrace` reads the files of
all ranks. Standard library only, and what is private in torch was read in torch 2.13.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from .connection import OWN_THREADS
from .torch_groups import Group

_FILE = "TORCH_FR_DUMP_TEMP_FILE"
_BOUND = 2.0
"""Seconds for writing. A file system that takes longer must not hold up the abort."""


def dump(groups: list[Group], rank: int) -> None:
    """Write the record, if the environment names a file for it. What goes wrong is printed."""
    begin = os.environ.get(_FILE)
    if begin and groups:
        arguments = (_recorder(groups), f"{begin}{rank}")
        writer = threading.Thread(target=_write, args=arguments, daemon=True, name=f"{OWN_THREADS}-recorder")
        writer.start()
        writer.join(_BOUND)


def _recorder(groups: list[Group]) -> Any:
    """Return the function that gives the record: NCCL has one of its own. None if this torch has no such function."""
    kinds = {type(backend).__name__ for _, backends in groups for backend in backends}
    c10d = sys.modules.get("torch._C._distributed_c10d")
    return getattr(c10d, "_dump_nccl_trace" if "ProcessGroupNCCL" in kinds else "_dump_fr_trace", None)


def _write(record: Any, path: str) -> None:
    try:
        data = record(includeCollectives=True, includeStackTraces=False, onlyActive=False)  # stacks need the GIL
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)  # noqa: PTH103, PTH120 - no import of pathlib
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(data)
    except Exception as error:
        print(f"ft-supervisor: no flight recorder's file {path}: {error!r}", file=sys.stderr, flush=True)
