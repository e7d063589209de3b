"""`python OPTIONS warm_start.py MODULE,MODULE... WORDS...`: a worker that is started ahead of its cycle.

It imports the modules, waits on FT_SUPERVISOR_SOCKET for a `run` message (agent/warm_workers.py sends it), and then
does what `python OPTIONS WORDS...` does: WORDS are a script or -m and a module, and their arguments. The script sees
what it would see without this file, except that sys.modules has more in it and that its stack begins with two frames of
ours.

It is run by its path in the worker's own interpreter, which may belong to another environment: so it needs the standard
library alone (Python 3.10 or newer) and imports nothing of this package. Where it cannot be read the interpreter ends
with an error; the script is never run before its time.
"""

# ruff: noqa: E402, PTH109, PTH112, PTH120, PTH123 - pathlib takes milliseconds to import
_FRESH = dict(globals())  # of a script that has not done anything yet

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", sys.flags.isolated):
    del sys.path[0]  # the folder of this file: what is there must not be imported by its bare name

import array
import builtins
import contextlib
import functools
import gc
import importlib
import json
import os
import socket
import time
from collections.abc import Callable
from importlib.util import MAGIC_NUMBER
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn

SOCKET = "FT_SUPERVISOR_SOCKET"
_LONGEST = 1 << 16
"""Bytes of a message."""
_REASON = 500
"""Characters of a reason."""
_READ_BOUND = 10.0
"""Seconds for the agent to read why this process leaves."""
_NO_SUCH_FILE = 2
"""Python's exit code when it cannot open the script."""


def main(modules: str, words: list[str], fresh: dict[str, Any]) -> None:
    """Wait, and become the script. `fresh`: the namespace of a script that has not done anything yet."""
    environ = frozenset(os.environ)
    began = time.monotonic()
    connection = _connect()
    _look_like(words)
    _import(modules.split(","), connection)
    gc.freeze()  # these objects live as long as the process: no collection has to look at them again
    _flush()
    _send(connection, type="warm", seconds=round(time.monotonic() - began, 3), memory=_memory())
    order, fds = _order(connection)
    _take_up(order["env"], fds, environ)
    # Before the script's first line, as later ends are the script's own.
    _send(connection, type="started", cycle=order["cycle"])
    connection.close()
    script = _script(words, fresh)
    try:
        script()
    except BaseException:
        _hide_own_frames()
        raise


# -- the wait


def _connect() -> socket.socket:
    name = os.environ.get(SOCKET)
    if not name:
        _leave(f"{SOCKET} is not set: what starts the interpreter has to pass its environment on", 1)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect("\0" + name[1:] if name.startswith("@") else name)
    except OSError as error:
        _leave(f"{name}: {error}", 1)
    _send(connection, type="hello", version=1, pid=os.getpid(), kind="warm")
    return connection


def _send(connection: socket.socket, **message: object) -> None:
    try:
        connection.send(json.dumps(message).encode())
    except OSError:  # the agent is gone, and this process must not outlive it
        os._exit(1)


def _leave(reason: str, code: int) -> NoReturn:
    """End this process. Nothing that a module has registered for the end is run: none of it is the script's."""
    sys.stderr.write(f"warm worker: {reason}\n")
    _flush()
    os._exit(code)


def _flush() -> None:
    for file in (sys.stdout, sys.stderr):
        try:
            file.flush()
        except (AttributeError, OSError, ValueError):  # a module may have put something else there, or closed it
            continue


def _import(modules: list[str], connection: socket.socket) -> None:
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:  # sys.exit() in a module too
            _cold(connection, f"import {name}: {type(error).__name__}: {error}")
        if _cuda_is_initialized():
            _cold(connection, f"import {name} initializes CUDA")


def _cuda_is_initialized() -> bool:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and bool(cuda.is_initialized())


def _cold(connection: socket.socket, why: str) -> NoReturn:
    why = " ".join(why.split())[:_REASON]
    _send(connection, type="cold", reason=why)
    connection.settimeout(_READ_BOUND)
    with contextlib.suppress(OSError):
        connection.recv(1)  # the agent closes the connection: it takes nothing from a process that has ended
    _leave(why, 0)


def _memory() -> int:
    """Return the MiB that this process has in memory."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    except (OSError, ValueError, IndexError):
        return 0


def _order(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Wait for `run`, and return it with its file descriptors."""
    room = socket.CMSG_SPACE(2 * array.array("i").itemsize)
    while True:
        try:
            data, ancillary, _, _ = connection.recvmsg(_LONGEST, room)
        except OSError:
            os._exit(1)
        if not data:
            os._exit(1)
        fds = array.array("i")
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        message = json.loads(data)
        if message["type"] == "leave":
            os._exit(0)
        if message["type"] == "run" and len(fds) == 2:
            return message, list(fds)


def _take_up(env: dict[str, str], fds: list[int], environ: frozenset[str]) -> None:
    """Take over the cycle's variables and streams. `environ`: the variables that the process was started with; those
    of the cycle among them come from the command itself, as in `env RANK=0 python`, and win as in a cold start."""
    _flush()
    for fd, number in zip(fds, (1, 2), strict=True):
        os.dup2(fd, number)
        os.close(fd)
    for name, value in env.items():
        if name not in environ:
            os.environ[name] = value


# -- the script


def _look_like(words: list[str]) -> None:
    """Have the modules that are imported see what they would see below the script."""
    sys.orig_argv = [*sys.orig_argv[: len(sys.orig_argv) - len(sys.argv)], *words]
    if words[0] == "-m":
        sys.argv = ["-m", *words[2:]]
        first = os.getcwd()
    elif _is_container(words[0]):
        sys.argv = list(words)
        sys.path.insert(0, _absolute(words[0]))
        return
    else:
        sys.argv = list(words)
        first = os.path.dirname(os.path.realpath(words[0]))
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path.insert(0, first)


def _absolute(script: str) -> str:
    """Return the path as the interpreter gives it to scripts: not normalized, and with its symbolic links."""
    return script if script.startswith("/") else f"{os.getcwd()}/{script}"


def _is_container(script: str) -> bool:
    """Return whether this is a folder or a zip file, which Python runs by the __main__ in it."""
    if os.path.isdir(script):
        return True
    if script.endswith(".py"):
        return False
    import zipimport

    try:
        zipimport.zipimporter(script)
    except ImportError:
        return False
    return True


def _script(words: list[str], fresh: dict[str, Any]) -> Callable[[], object]:
    """Return what runs the script in the real __main__, whose namespace is emptied."""
    namespace = sys.modules["__main__"].__dict__
    loader = fresh["__loader__"]
    namespace.clear()
    namespace.update(fresh)
    if "__annotations__" in fresh:
        namespace["__annotations__"] = {}
    if words[0] == "-m" or _is_container(words[0]):
        import runpy

        name, alter_argv = (words[1], True) if words[0] == "-m" else ("__main__", False)
        run: Any = runpy._run_module_as_main  # type: ignore[attr-defined] # as the interpreter itself does
        return functools.partial(run, name, alter_argv)
    path = _absolute(words[0])
    namespace["__file__"] = path
    namespace["__doc__"] = None
    namespace["__loader__"] = type(loader)("__main__", path)
    return functools.partial(exec, _code(path), namespace)


def _code(path: str) -> CodeType:
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        sys.stderr.write(f"{sys.orig_argv[0]}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n")
        raise SystemExit(_NO_SUCH_FILE) from None
    if source.startswith(MAGIC_NUMBER):
        import marshal

        compiled: CodeType = marshal.loads(source[16:])
        return compiled
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except BaseException:
        _hide_own_frames()
        raise


def _hide_own_frames() -> None:
    """Have the exception that is about to end this process shown from the script's first frame on. Only now: a program
    may look whether sys.excepthook is Python's own."""
    hook = getattr(sys, "excepthook", None)
    if not callable(hook):
        return

    def shown(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        value.__traceback__ = trace
        sys.last_traceback = trace
        sys.excepthook = hook
        hook(kind, value, trace)

    sys.excepthook = shown


def _own_module() -> ModuleType:
    """Return this file as a module apart from __main__, which becomes the script's."""
    own = ModuleType("_ft_supervisor_warm_start")
    own.__file__ = __file__
    with open(__file__, "rb") as file:
        builtins.exec(compile(file.read(), __file__, "exec", dont_inherit=True), own.__dict__)
    return own


if __name__ == "__main__":
    _own_module().main(sys.argv[1], sys.argv[2:], _FRESH)
