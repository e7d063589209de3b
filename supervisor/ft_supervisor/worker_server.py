"""Starts torch's worker server in a worker, without a line in its script.

torch calls `start` at the end of `import torch` in every process of an environment in which ft-supervisor is installed:
the entry point is in the group `torch.backends` (torch/__init__.py, _import_device_backends;
TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns all of that group off). It does nothing unless an agent has set the variable.

The server is a C++ thread that answers on a unix socket, for its record of collectives without the GIL
(evidence/server.py asks). What is private in torch was read in torch 2.13; where it is missing nothing is started. An
error here would end `import torch`, so it is printed. Standard library and torch only.
"""

from __future__ import annotations

import os
import sys

FOLDER = "FT_SUPERVISOR_EVIDENCE"
"""The folder of the sockets, which are named by the worker's pid. The agent makes it, and only its user may enter."""
AGENT = "FT_SUPERVISOR_AGENT_PID"
_LOG = b"WorkerServer.cpp"
"""What is in the line that the server writes to stderr when it begins."""
_PR_SET_PTRACER = 0x59616D61


def start() -> None:
    """Start the server, once in each worker; not in processes that multiprocessing has started, as a data loader's."""
    folder = os.environ.get(FOLDER)
    if folder:
        try:
            if not _is_child_of_multiprocessing():
                _start(f"{folder}/{os.getpid()}")
                _let_agent_look()
        except Exception as error:
            print(f"ft-supervisor: no worker server: {error!r}", file=sys.stderr, flush=True)


def _is_child_of_multiprocessing() -> bool:
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    # while a spawned process imports what it needs it has no parent_process yet
    return process.parent_process() is not None or bool(getattr(process.current_process(), "_inheriting", False))


def _start(path: str) -> None:
    import ctypes

    from torch._C import _distributed_c10d as c10d

    if not hasattr(c10d, "_WorkerServer"):
        return
    if os.path.exists(path):  # noqa: PTH110 - of a process that had this pid; pathlib takes milliseconds to import
        os.unlink(path)  # noqa: PTH108
    sys.stderr.flush()
    real, kept = os.dup(2), os.memfd_create("ft-supervisor")
    os.dup2(kept, 2)  # the server writes one line when it begins, for which nobody has asked
    try:
        server = c10d._WorkerServer(path)
        # never freed: its destructor may wait for ever, or end the process, at the interpreter's end
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
    finally:
        os.dup2(real, 2)
        os.close(real)
        for line in os.pread(kept, 1 << 16, 0).splitlines(keepends=True):
            if _LOG not in line:
                os.write(2, line)  # another thread's
        os.close(kept)


def _let_agent_look() -> None:
    """Let the agent and its py-spy read this process's memory where Yama allows that to ancestors alone (prctl(2),
    PR_SET_PTRACER); elsewhere it changes nothing."""
    import ctypes

    agent = os.environ.get(AGENT, "")
    if agent.isdecimal():
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(int(agent)), 0, 0, 0)
