"""Functions that are plain ones: without an agent, in a thread, inside of another one; and those that are refused."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.worker.fake_agent import Worker

from ft_supervisor import worker
from ft_supervisor.worker import CallState

Start = Callable[..., Worker]
REPOSITORY = Path(__file__).resolve().parents[2]


def test_without_an_agent_the_function_stays_as_it_is() -> None:
    def train(value: int) -> int:
        with worker.atomic(), worker.unwatched():
            worker.ping(step=value)
        assert worker.current() is None
        return value + 1

    assert worker.restartable(train) is train
    assert worker.restartable(abort=print, finalize=[print], health_check=(), terminate=print)(train) is train
    assert train(1) == 2


def test_without_an_agent_the_hooks_around_the_call_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "TORCHELASTIC_RESTART_COUNT": "2"}.items():
        monkeypatch.setenv(name, value)
    seen: list[object] = []

    @worker.restartable(initialize=[seen.append, lambda _: seen.append("second")], completion=seen.append)
    def train(value: int) -> int:
        """Has a docstring."""
        seen.append(value)
        if value < 0:
            raise ValueError("bad")
        return value

    assert train(5) == 5
    assert seen == [CallState(3, 4, "0.2", 0), "second", 5, CallState(3, 4, "0.2", 0)]
    assert (train.__name__, train.__doc__) == ("train", "Has a docstring.")
    with pytest.raises(ValueError, match="bad"):
        train(-1)


async def coroutine() -> None: ...


def generator() -> object:
    yield


async def generator_of_coroutines() -> object:
    yield


class CallsCoroutine:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "function",
    [coroutine, generator, generator_of_coroutines, functools.partial(functools.partial(generator)), CallsCoroutine()],
)
def test_a_generator_or_coroutine_function_is_refused(function: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="cannot be restartable"):
        worker.restartable(function)


def test_an_unknown_hook_is_refused() -> None:
    with pytest.raises(TypeError, match="finalise"):
        worker.restartable(finalise=print)  # type: ignore[call-overload]


def test_a_class_a_method_and_a_built_in_can_be_restartable(start: Start) -> None:
    process = start("""
import functools
class Trainer:
    def __init__(self, value):
        self.value = value
    @worker.restartable
    def train(self):
        return self.value
    def __call__(self):
        return self.value + 1

say(Trainer(1).train())
say(worker.restartable(Trainer(1))())
say(worker.restartable(functools.partial(max, 3))(7))
""")
    process.expect("hello")
    for line in ("1", "2", "7"):
        process.expect("called")
        process.expect("completed")
        process.send("release")
        process.says(line)
    process.ends(0)


def test_a_nested_call_and_one_in_a_thread_are_plain(start: Start) -> None:
    process = start("""
import threading
@worker.restartable(initialize=lambda state: say('NOT REACHED'))
def inner(value):
    if worker.current().iteration == 0:
        say('in')
        time.sleep(600)
    return value

@worker.restartable
def train():
    say(inner('nested'))
    inside = threading.Thread(target=inner, args=('thread',))
    inside.start()
    inside.join()

def outside():
    say(alone('in a thread'))
@worker.restartable
def alone(value):
    return value
thread = threading.Thread(target=outside)
thread.start()
thread.join()
train()
""")
    process.begin()
    process.says("in a thread")
    process.says("in")
    process.send("abort")
    process.parks()
    process.run("0.1")
    process.expect("called")
    process.says("nested")
    process.returns()
    assert process.output().count("runs in a thread: it is not restartable") == 1
    assert "NOT REACHED" not in process.output()


def test_an_agent_that_is_not_there_is_one_warning(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from ft_supervisor import worker\n@worker.restartable\ndef f(): return 7\nprint(f(), f())\n")
    env = {**os.environ, "FT_SUPERVISOR_SOCKET": "@ft-supervisor-not-there"}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == "7 7\n" and done.stderr.count("RuntimeWarning: not restartable, no agent at") == 1


def test_a_copy_of_the_folder_can_be_imported_alone(tmp_path: Path) -> None:
    """Training may run in another environment than the supervisor."""
    source = REPOSITORY / "supervisor" / "ft_supervisor" / "worker"
    (tmp_path / "copied").mkdir()
    for file in source.glob("*.py"):
        (tmp_path / "copied" / file.name).write_bytes(file.read_bytes())
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import copied; print(copied.restartable(len) is len)"
    line = [sys.executable, "-I", "-S", "-c", code]  # without site-packages
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr
