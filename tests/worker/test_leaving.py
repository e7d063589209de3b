"""Functions that are left in the middle of all kinds of calls when their cycle ends, and are called again."""

import signal
from collections.abc import Callable

import pytest
from tests.worker.fake_agent import Worker

Start = Callable[..., Worker]

KEPT_LOOP = """
        import asyncio
        kept.setdefault('loop', asyncio.new_event_loop())
        kept['loop'].run_until_complete(asyncio.sleep(600))"""
AWKWARD = {
    "sleep": "time.sleep(600)",
    "queue": "import queue; queue.Queue().get()",
    "subprocess": "import subprocess; subprocess.run(['sleep', '150'])",
    "pipe": "os.read(os.pipe()[0], 1)",
    "lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "thread": "patient.join()",
    "socket": "import socket; socket.create_server(('127.0.0.1', 0)).accept()",
    "busy loop": "while True: pass",
    "asyncio": "import asyncio; asyncio.run(asyncio.sleep(600))",
    "asyncio tasks": """
        import asyncio
        async def busy():
            while True:
                await asyncio.sleep(0)
        async def both():
            await asyncio.gather(busy(), busy())
        asyncio.run(both())""",
    "a loop that is kept": KEPT_LOOP,
    "the same loop": KEPT_LOOP,
    "import": "import slow_module",
    "except Exception": """
        while True:
            try:
                time.sleep(600)
            except Exception:
                pass""",
    "finally": """
        try:
            time.sleep(600)
        finally:
            time.sleep(0.3)
            say('cleaned up')""",
    "swallows it once": """
        try:
            time.sleep(600)
        except BaseException:
            time.sleep(600)""",
    "lost in __del__": """
        class Slow:
            def __del__(self):
                time.sleep(600)
        Slow()
        time.sleep(600)""",
    "lost in __exit__": """
        class Swallows:
            def __enter__(self): pass
            def __exit__(self, *_): return True
        with Swallows():
            time.sleep(600)
        time.sleep(600)""",
    "lost in an exit function": """
        import atexit
        atexit.register(time.sleep, 600)
        atexit._run_exitfuncs()
        time.sleep(600)""",
    "raises another one": """
        try:
            time.sleep(600)
        except BaseException:
            raise ValueError('an echo')""",
    "returns on the way out": """
        try:
            time.sleep(600)
        finally:
            return""",
    "leaves by sys.exit(0)": """
        try:
            time.sleep(600)
        except worker.Restart:
            sys.exit(0)""",
    "generator": """
        def numbers():
            while True:
                yield time.sleep(0.01)
        for _ in numbers(): pass""",
}

AWKWARD_SCRIPT = """
import pathlib, threading
sys.path.insert(0, str(pathlib.Path(__file__).parent))
pathlib.Path(__file__).with_name('slow_module.py').write_text('import time; time.sleep(600)')
patient = threading.Thread(target=threading.Event().wait, daemon=True)
patient.start()
kept = {}

BODIES = {bodies!r}

@worker.restartable
def train():
    here = worker.current().iteration
    if here == len(BODIES):
        return
    say('in', here)
    lines = BODIES[here].strip('\\n')
    indented = lines if lines.startswith(' ') else '        ' + lines
    space = dict(globals())
    exec('def body():\\n' + indented, space)
    space['body']()
    say('NOT REACHED')

train()
"""


def test_a_function_is_left_at_any_place_and_called_again(start: Start) -> None:
    worker = start(AWKWARD_SCRIPT.replace("{bodies!r}", repr(list(AWKWARD.values()))))
    worker.begin()
    for number in range(len(AWKWARD)):
        worker.says(f"in {number}")
        worker.send("abort")
        worker.parks(threads=[], kept=[])
        worker.run(f"0.{number + 1}")
        worker.expect("called")
    worker.returns()
    outcome = worker.output()
    assert outcome.count("NOT REACHED") == 1, outcome  # by the one that returns in a `finally`
    assert "cleaned up" in outcome


def test_an_import_is_not_cut_short(start: Start) -> None:
    """A package whose import was cut short leaves submodules behind, and cannot be imported again."""
    worker = start("""
import pathlib
sys.path.insert(0, os.path.dirname(__file__))
package = pathlib.Path(__file__).with_name('package')
package.mkdir()
package.joinpath('__init__.py').write_text('from .inner import *; x = inner; import package.slow')
package.joinpath('inner.py').write_text('y = 1')
package.joinpath('slow.py').write_text('''
import time
from ft_supervisor.worker.leaving import LEAVING
print('importing', flush=True)
while not LEAVING.due:
    time.sleep(0.001)
time.sleep(0.3)  # the signal comes in here
''')

@worker.restartable
def train():
    import package
    say('imported')
    if worker.current().iteration == 0:
        time.sleep(600)
train()
""")
    worker.begin()
    worker.says("importing")
    worker.send("abort")
    worker.parks()
    worker.run("0.1")
    worker.expect("called")
    worker.says("imported")
    worker.returns()
    assert worker.output().count("importing") == 1


def test_a_function_that_always_swallows_restart_is_left_to_the_agent(start: Start) -> None:
    worker = start("""
@worker.restartable
def train():
    say('in')
    while True:
        try:
            time.sleep(600)
        except BaseException as error:
            say('swallowed', type(error).__name__)
train()
""")
    worker.begin()
    worker.says("in")
    worker.send("abort")
    for _ in range(3):
        worker.says("swallowed Restart")
    with pytest.raises(TimeoutError):
        worker.receive(bound=0.1)


def test_an_atomic_section_is_finished_before_hooks_and_function_are_left(start: Start) -> None:
    worker = start("""
@worker.restartable(abort=lambda state: say('abort hook'))
def train():
    if worker.current().iteration:
        return
    with worker.atomic():
        with worker.atomic():
            say('saving')
            wait_for('go')
        say('saved')
    say('NOT REACHED')
train()
""")
    worker.begin()
    worker.says("saving")
    worker.send("abort")
    with pytest.raises(TimeoutError):
        worker.receive(bound=0.5)
    worker.go("go")
    worker.says("saved")
    worker.says("abort hook")
    worker.parks()
    assert "NOT REACHED" not in worker.output()


def test_an_atomic_section_cannot_be_entered_any_more(start: Start) -> None:
    worker = start("""
@worker.restartable
def train():
    if worker.current().iteration:
        return
    say('in')
    try:
        time.sleep(600)
    except worker.Restart:
        with worker.atomic():
            say('NOT REACHED')
train()
""")
    worker.begin()
    worker.says("in")
    worker.send("abort")
    worker.parks()
    worker.run("0.1")
    worker.expect("called")
    worker.returns()
    assert "NOT REACHED" not in worker.output()


def test_a_ping_is_a_place_to_leave(start: Start) -> None:
    """Even where the signal is lost each time."""
    worker = start("""
class Swallows:
    def __enter__(self): pass
    def __exit__(self, *_): return True

@worker.restartable
def train():
    say('in')
    with Swallows():
        time.sleep(600)
    worker.ping()
    say('NOT REACHED')
train()
""")
    worker.begin()
    worker.says("in")
    worker.send("abort")
    assert worker.receive() == {"type": "progress", "cycle": "0.0"}
    worker.parks()
    assert "NOT REACHED" not in worker.output()


def test_an_abort_right_behind_a_run_is_not_missed(start: Start) -> None:
    worker = start("""
@worker.restartable
def train():
    if worker.current().cycle == '0.last':
        return
    time.sleep(600)
train()
""")
    worker.begin()
    worker.send("abort")
    worker.parks()
    for number in range(30):
        worker.run(f"0.{number}")
        worker.send("abort")
        worker.expect("called")
        worker.parks()
    worker.run("0.last")
    worker.expect("called")
    worker.returns()


def test_a_message_about_another_cycle_or_at_the_wrong_time_is_dropped(start: Start) -> None:
    worker = start("""
@worker.restartable
def train():
    say('in', worker.current().cycle)
    wait_for(worker.current().cycle)
train()
""")
    worker.begin()
    worker.says("in 0.0")
    worker.send("abort", cycle="9.9")
    worker.send("run", cycle="9.9", env={})
    worker.send("unknown")
    worker.go("0.0")
    worker.expect("completed")
    worker.send("release", cycle="9.9")
    worker.send("abort")
    worker.parks()
    worker.run("0.1")
    worker.expect("called")
    worker.says("in 0.1")
    worker.send("abort", cycle="0.0")
    worker.go("0.1")
    worker.returns()


def test_signals_of_the_script_are_left_alone(start: Start) -> None:
    worker = start("""
import asyncio, faulthandler, signal
signal.signal(signal.SIGTERM, lambda *_: say('TERM'))
signal.signal(signal.SIGUSR1, lambda *_: say('USR1'))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
faulthandler.register(signal.SIGUSR2)
read, write = os.pipe()
os.set_blocking(write, False)
signal.set_wakeup_fd(write)
before = [signal.getsignal(n) for n in range(1, 32) if n not in (9, 19)]

@worker.restartable
def train():
    say('in', worker.current().iteration)
    if worker.current().iteration == 2:
        assert signal.set_wakeup_fd(-1) == write
        assert before == [signal.getsignal(n) for n in range(1, 32) if n not in (9, 19)]
        return
    async def loop():
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, say, 'HUP')
        say('looping')
        await asyncio.sleep(600)
    if worker.current().iteration == 1:
        time.sleep(600)
    former = signal.set_wakeup_fd(-1)
    try:
        asyncio.run(loop())
    finally:
        signal.set_wakeup_fd(former)
train()
""")
    worker.begin()
    worker.says("looping")
    for number, line in ((signal.SIGTERM, "TERM"), (signal.SIGHUP, "HUP")):
        worker.process.send_signal(number)
        worker.says(line)
    worker.send("abort")
    worker.parks()
    worker.process.send_signal(signal.SIGUSR1)  # while it is parked, too
    worker.says("USR1")
    worker.run("0.1")
    worker.expect("called")
    worker.says("in 1")
    worker.process.send_signal(signal.SIGTERM)
    worker.says("TERM")
    worker.send("abort")
    worker.parks()
    worker.run("0.2")
    worker.expect("called")
    worker.returns()


def test_a_handler_of_our_signal_is_replaced_with_a_warning(start: Start) -> None:
    worker = start("""
import signal
signal.signal(signal.SIGRTMIN + 6, lambda *_: say('mine'))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN + 6})
@worker.restartable
def train():
    say('in')
    time.sleep(600)
train()
""")
    worker.begin()
    worker.says("in")
    worker.send("abort")
    worker.parks()
    assert "RuntimeWarning: SIGRTMIN+6" in worker.output() and "mine" not in worker.output()


def test_our_signal_is_ours_again_in_each_call(start: Start) -> None:
    """A function that takes it is left at a ping."""
    worker = start("""
import signal
@worker.restartable
def train():
    say('in')
    if worker.current().iteration == 0:
        signal.signal(signal.SIGRTMIN + 6, lambda *_: say('mine'))
        say('taken')
        wait_for('go')
        worker.ping()
        say('NOT REACHED')
    time.sleep(600)
train()
""")
    worker.begin()
    worker.says("taken")
    worker.send("abort")
    worker.says_beginning("ft-supervisor: SIGRTMIN+6 has another handler")
    worker.says("mine")
    worker.go("go")
    assert worker.receive() == {"type": "progress", "cycle": "0.0"}
    worker.parks()
    worker.run("0.1")
    worker.expect("called")
    worker.says("in")
    worker.send("abort")
    worker.parks()
    output = worker.output()
    assert output.count("has another handler") == output.count("RuntimeWarning: SIGRTMIN+6") == 1, output
    assert "NOT REACHED" not in output


def test_exit_functions_of_the_script_are_not_interrupted(start: Start) -> None:
    worker = start("""
import atexit
go = os.path.join(os.path.dirname(__file__), 'go')  # this name is gone at the end

def slowly():
    say('exit function')
    while not os.path.exists(go):
        time.sleep(0.005)
    say('finished')

@worker.restartable
def train():
    pass

atexit.register(slowly)
train()
""")
    worker.begin()
    worker.expect("completed")
    worker.send("release")
    worker.says("exit function")
    worker.send("abort")
    worker.process.send_signal(signal.SIGRTMIN + 6)
    worker.go("go")
    worker.says("finished")
    worker.ends(0)
