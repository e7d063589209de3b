"""Set up every test: an environment without a Slurm job around it, this venv's programs, and the tier that runs."""

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

# Tests may run inside a Slurm job or under torchrun, whose variables would change what is tested.
for name in list(os.environ):
    if name.startswith(("SLURM_", "SLURMD_", "TORCHELASTIC_", "FT_SUPERVISOR_")):
        del os.environ[name]
# The index of runs of the user who runs the tests stays as it is.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="ft-tests-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
# Tests wait for lines that by default are not written; those about the default take this away.
os.environ["FT_SUPERVISOR_LOG_LEVEL"] = "debug"
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")  # a flaky resolver stalls a TCPStore for 5 s otherwise

# A shell starts background processes with Ctrl-C ignored, and their children inherit that: tests need the default.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

# No deadline: this measures the machine's load. The same examples each time on a build server, new ones elsewhere.
settings.register_profile(
    "default", max_examples=100, deadline=None, derandomize=os.environ.get("CI") == "true", print_blob=True
)
settings.register_profile("all", settings.get_profile("default"), max_examples=800)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="the tests marked slow, too, and 800 examples of each property")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("all" if config.getoption("--all") else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow, unless all is asked for."""
    if config.getoption("--all"):
        return
    slow = {item for item in items if item.get_closest_marker("slow")}
    config.hook.pytest_deselected(items=list(slow))
    items[:] = [item for item in items if item not in slow]


@pytest.fixture(autouse=True)
def thread_hook() -> Iterator[None]:
    """Restore threading.excepthook: a command that a test runs in this process replaces it (process.threads)."""
    hook = threading.excepthook
    yield
    threading.excepthook = hook


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the top folder of the checkout."""
    return REPOSITORY


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Return a function that finds a TCP port on which nothing listens now; another program may still take it."""

    def pick() -> int:
        with socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    return pick
