"""What every test gets: an environment that says nothing of a Slurm job around it, and the programs of this venv."""

import atexit
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import socket

import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parent.parent

# Tests may themselves be run inside a Slurm job or under torchrun: what those leave in the environment is not for us.
for name in list(os.environ):
    if name.startswith(("SLURM_", "SLURMD_", "TORCHELASTIC_", "FT_SUPERVISOR_")):
        del os.environ[name]
# The index of runs of the user who runs the tests stays as it is.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="ft-tests-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")  # a flaky resolver stalls a TCPStore for 5 s otherwise

# Whoever starts tests in the background has them ignore Ctrl-C, and all that they start: that is not for us either.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

# No deadline: this measures the machine's load. The same examples each time on a build server, new ones elsewhere.
settings.register_profile("default", deadline=None, derandomize=os.environ.get("CI") == "true", print_blob=True)
settings.load_profile("default")


@pytest.fixture(autouse=True)
def thread_hook() -> Iterator[None]:
    """A command that a test runs in this process has an exception in any thread end it (process.threads): only then."""
    hook = threading.excepthook
    yield
    threading.excepthook = hook


@pytest.fixture(scope="session")
def repository() -> Path:
    """The top folder of the checkout."""
    return REPOSITORY


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A port that nothing listens on just now; somebody else may still take it before you do."""

    def pick() -> int:
        with socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    return pick
