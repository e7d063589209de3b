"""Functions and hooks that fail or end the process by themselves: messages to the agent, and remains."""

import signal
from collections.abc import Callable

import pytest
from tests.worker.fake_agent import Worker

from ft_supervisor.agent.starter import NO_PLACE

Start = Callable[..., Worker]


def test_an_exception_is_reported_and_the_process_is_called_again(start: Start) -> None:
    worker = start("""
class Trouble(ValueError):
    def __str__(self):
        if self.args:
            return super().__str__()
        raise RuntimeError('no words')

@worker.restartable
def train(first, *, second):
    assert (first, second) == (1, 2)
    here = worker.current().iteration
    if here == 0:
        raise ValueError('bad')
    if here == 1:
        raise Trouble
    if here == 2:
        raise Trouble('\\U0001f600\\x00\\udc80' * 100000) from KeyError('before')
    if here == 3:
        raise ExceptionGroup('two', [ValueError('a'), KeyError('b')])
    if here == 4:
        raise worker.Restart('once more, please')
    return 'done'

assert train(1, second=2) == 'done'
""")
    worker.begin()
    stack = worker.expect("failed", exception="ValueError", message="bad", phase="function")["stack"]
    assert stack.startswith("Traceback") and stack.endswith("ValueError: bad\n") and "in train" in stack
    worker.parks()
    assert stack in worker.output()
    words = ("<RuntimeError in __str__>", "\U0001f600", "two (2 sub-exceptions)", "once more, please")
    names = ("__main__.Trouble", "__main__.Trouble", "ExceptionGroup", "ft_supervisor.worker.leaving.Restart")
    for number, (name, beginning) in enumerate(zip(names, words, strict=True), 1):
        worker.run(f"0.{number}")
        worker.expect("called")
        assert worker.expect("failed", exception=name)["message"].startswith(beginning)
        worker.parks()
    worker.run("0.5")
    worker.expect("called")
    worker.returns()


def test_nothing_that_the_function_held_is_alive_when_finalize_runs(start: Start) -> None:
    worker = start("""
import weakref
class Holds: pass
class Worse(RuntimeError): pass
refs = []

def fail(group):
    local = Holds()
    local.itself = local
    refs.append(weakref.ref(group))
    raise ValueError('bad')

def look(state):
    refs.append(weakref.ref(state.exception))
    say('finalize', refs[0]() is None, type(state.exception).__name__, state.exception.__traceback__)

@worker.restartable(finalize=look)
def train():
    if worker.current().iteration:
        say('called again', refs[1]() is None, worker.current().exception)
        return
    group = Holds()
    try:
        fail(group)
    except ValueError as error:
        raise Worse('worse') from error

train()
""")
    worker.begin()
    worker.expect("failed", exception="__main__.Worse")
    worker.parks()
    worker.says("finalize True Worse None")
    worker.run("0.1")
    worker.expect("called")
    worker.says("called again True None")
    worker.returns()


@pytest.mark.parametrize(
    ("line", "code", "reason"),
    [
        ("sys.exit(42)", 42, "SystemExit: 42"),
        ("sys.exit('no data')", 1, "SystemExit: no data"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt: "),
        ("raise Custom('x')", 1, "__main__.Custom: x"),
    ],
)
def test_some_exceptions_end_the_process(line: str, code: int, reason: str, start: Start) -> None:
    worker = start(f"""
class Custom(BaseException): pass

@worker.restartable(terminate=[lambda state: say('terminate', state.cycle), lambda state: 1 / 0])
def train():
    {line}

train()
""")
    worker.begin()
    worker.expect("fatal", reason=reason)
    assert worker.receive() is None
    worker.ends(code)
    assert "terminate 0.0\n" in worker.output() and "ZeroDivisionError" in worker.output()


def test_sys_exit_0_is_a_return(start: Start) -> None:
    worker = start("""
import threading
@worker.restartable(completion=[lambda state: say('completion'), lambda state: 1 / 0])
def train():
    thread = threading.Thread(target=sys.exit, args=(3,))  # ends that thread alone
    thread.start()
    thread.join()
    sys.exit()

train()
say('NOT REACHED')
""")
    worker.begin()
    worker.expect("completed")
    assert "completion" not in worker.output()
    worker.send("release")
    worker.ends(0)
    assert "completion\n" in worker.output() and "NOT REACHED" not in worker.output()


@pytest.mark.parametrize("fails", [True, False])
def test_a_process_makes_way_for_a_new_one_if_a_function_has_returned_before(fails: bool, start: Start) -> None:
    """A new process would begin with the first function, and wait there for the others."""
    worker = start("""
@worker.restartable
def train(part):
    say('in', part)
    if part == 'second':
        wait_for('go')
        raise ValueError('bad')
train('first')
train('second')
""")
    worker.begin()
    worker.expect("completed")
    worker.send("release")
    worker.expect("called")
    worker.says("in second")
    if fails:
        worker.go("go")
        worker.expect("failed", message="bad")
    else:
        worker.send("abort")
    assert "a restartable function has returned before this one" in worker.expect("fatal")["reason"]
    worker.ends(1)


def test_an_exit_by_the_script_while_it_is_left_ends_the_process(start: Start) -> None:
    worker = start("""
@worker.restartable
def train():
    say('in')
    try:
        time.sleep(600)
    except BaseException:
        sys.exit(7)

train()
""")
    worker.begin()
    worker.says("in")
    worker.send("abort")
    worker.expect("fatal", reason="SystemExit: 7")
    worker.ends(7)


def test_workers_that_have_returned_are_called_again_too(start: Start) -> None:
    worker = start("""
@worker.restartable(completion=lambda state: say('completion', state.cycle))
def train():
    return worker.current()

say(tuple(train()))
say('second', train().iteration)  # two runs, one after the other
""")
    worker.begin()
    worker.expect("completed")
    worker.send("abort")
    worker.parks()
    worker.run("0.1", RANK="3", WORLD_SIZE="4")
    worker.expect("called")
    worker.expect("completed")
    worker.send("release")
    worker.says("completion 0.1")
    worker.says("(3, 4, '0.1', 1, None)")
    worker.expect("called")
    worker.returns()
    assert worker.output().endswith("completion 0.1\nsecond 0\n")


def test_hooks_run_in_their_order_in_each_cycle(start: Start) -> None:
    worker = start("""
import threading
def hook(name):
    return lambda state: say(name, state.cycle, state.iteration, threading.current_thread() is threading.main_thread())

@worker.restartable(initialize=[hook('i1'), hook('i2')], abort=(hook('a1'), hook('a2')), finalize=hook('f'),
                    health_check=[hook('h')], completion=hook('c'), terminate=hook('t'))
def train():
    say('function')
    if not worker.current().iteration:
        time.sleep(600)

train()
""")
    worker.begin()
    worker.says("function")
    worker.send("abort")
    worker.parks()
    worker.run("0.1")
    worker.expect("called")
    worker.returns()
    first = ["i1 0.0 0 True", "i2 0.0 0 True", "function"]
    between = ["a1 0.0 0 False", "a2 0.0 0 False", "f 0.0 0 True", "h 0.0 0 True"]
    second = ["i1 0.1 1 True", "i2 0.1 1 True", "function", "c 0.1 1 True"]
    assert worker.output().splitlines() == first + between + second


FAILING_HOOK = """
def hook(state):
    if state.iteration == 0:
        {line}

@worker.restartable({kind}=hook)
def train():
    if worker.current().iteration == 0:
        say('in')
        time.sleep(600)

train()
"""


def test_an_initialize_hook_that_fails_costs_the_cycle(start: Start) -> None:
    worker = start(FAILING_HOOK.format(kind="initialize", line="raise OSError('not yet')"))
    worker.begin()
    worker.expect("failed", exception="OSError", message="not yet", phase="initialize")
    worker.parks()
    worker.run("0.1")
    worker.expect("called")
    worker.returns()


def test_an_initialize_hook_can_end_the_process(start: Start) -> None:
    worker = start(FAILING_HOOK.format(kind="initialize", line="raise BaseException('never')"))
    worker.begin()
    worker.expect("fatal", reason="BaseException: never")
    worker.ends(1)


def test_an_initialize_hook_is_left_as_the_function_is(start: Start) -> None:
    worker = start(FAILING_HOOK.format(kind="initialize", line="say('in hook'); time.sleep(600)"))
    worker.begin()
    worker.says("in hook")
    worker.send("abort")
    worker.parks()
    worker.run("0.1")
    worker.expect("called")
    worker.returns()


@pytest.mark.parametrize("kind", ["finalize", "health_check"])
def test_a_hook_after_the_function_that_fails_costs_the_process(kind: str, start: Start) -> None:
    worker = start(FAILING_HOOK.format(kind=kind, line="raise OSError('broken')"))
    worker.begin()
    worker.says("in")
    worker.send("abort")
    worker.expect("failed", exception="OSError", message="broken", phase=kind)
    worker.expect("fatal", reason="OSError: broken")
    worker.ends(1)
    assert worker.output().count("OSError: broken") == 1


def test_an_abort_hook_that_fails_costs_the_process(start: Start) -> None:
    worker = start(FAILING_HOOK.format(kind="abort", line="raise OSError('broken')"))
    worker.begin()
    worker.says("in")
    worker.send("abort")
    worker.expect("fatal", reason="OSError: broken")
    worker.ends(1)


def test_an_abort_while_a_failed_function_quiesces_changes_nothing(start: Start) -> None:
    worker = start("""
@worker.restartable(finalize=lambda state: (say('finalize'), wait_for('go')))
def train():
    if not worker.current().iteration:
        raise ValueError('bad')

train()
""")
    worker.begin()
    worker.expect("failed")
    worker.says("finalize")
    worker.send("abort")
    worker.go("go")
    worker.parks()
    worker.run("0.1")
    worker.expect("called")
    worker.returns()


@pytest.mark.parametrize("environment", [{}, NO_PLACE])
def test_a_spare_waits_in_the_function_for_its_place(environment: dict[str, str], start: Start) -> None:
    script = """
@worker.restartable
def train():
    say(tuple(worker.current()), os.environ['MASTER_PORT'])

say('set up')
train()
"""
    worker = start(script, environment=environment)
    worker.expect("hello")
    worker.expect("parked", cycle="")
    worker.run("2.7", RANK="1", WORLD_SIZE="2", MASTER_PORT="1234")
    worker.expect("called")
    worker.returns()
    assert worker.output() == "set up\n(1, 2, '2.7', 0, None) 1234\n"


PARKED = """
@worker.restartable
def train():
    say('in')
    wait_for('go')
    if os.path.exists(os.path.join(os.path.dirname(__file__), 'fail')):
        raise ValueError('bad')

train()
say('after')
"""


def test_without_an_agent_a_parked_process_ends(start: Start) -> None:
    worker = start(PARKED)
    worker.begin()
    worker.says("in")
    worker.send("abort")
    worker.parks()
    worker.hang_up()
    worker.ends(1)


def test_a_parked_process_leaves_when_it_is_asked_to(start: Start) -> None:
    worker = start(PARKED)
    worker.begin()
    worker.says("in")
    worker.send("abort")
    worker.parks()
    worker.send("leave")
    worker.ends(0)
    assert "after" not in worker.output()


@pytest.mark.parametrize(("files", "code"), [(["go"], 0), (["fail", "go"], 1)])
def test_without_an_agent_a_function_that_runs_becomes_a_plain_one(files: list[str], code: int, start: Start) -> None:
    worker = start(PARKED)
    worker.begin()
    worker.says("in")
    worker.hang_up()
    for name in files:
        worker.go(name)
    worker.ends(code)
    assert ("after" in worker.output()) is (code == 0)
    assert ("ValueError: bad" in worker.output()) is (code == 1)


def test_a_signal_handler_may_end_a_parked_process(start: Start) -> None:
    worker = start("import signal\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n" + PARKED)
    worker.begin()
    worker.says("in")
    worker.send("abort")
    worker.parks()
    worker.process.terminate()
    worker.expect("fatal", reason="SystemExit: 5")
    worker.ends(5)
