"""Finding and killing whole trees of real processes: in other sessions, without parents, ignoring TERM."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

import pytest

from ft_supervisor.process import prctl, tree


class Nursery(Protocol):
    """See conftest."""

    pid: int
    pids: list[int]


Start = Callable[..., Nursery]

SLEEPER = "echo $$; exec sleep 600"
IN_ITS_OWN_SESSION = "exec setsid sh -c 'echo $$; exec sleep 600'"
ORPHAN = "(setsid sh -c 'echo $$; exec sleep 600' &)"
DEAF = "trap '' TERM INT HUP; echo $$; exec sleep 600"
STOPPED = "echo $$; kill -STOP $$"
AGAIN_AND_AGAIN = "echo $$; while :; do sleep 600 & wait $!; done"
HEADLESS = f"""exec {sys.executable} -c '
import ctypes, os, platform, threading, time
print(os.getpid(), flush=True)
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(dict(x86_64=60, aarch64=93)[platform.machine()], 0)  # ends this thread alone
'"""


def living(pids: Collection[int], root: int) -> set[int]:
    """Return those that still run below `root`."""
    return {pid for pid, (state, _) in tree.descendants(root).items() if pid in pids and state not in "ZX"}


def test_descendants_are_those_of_all_sessions_and_generations(nursery: Start) -> None:
    root = nursery(SLEEPER, IN_ITS_OWN_SESSION, ORPHAN, f"({SLEEPER}) & wait", count=4)
    found = tree.descendants(root.pid)
    assert set(root.pids) <= found.keys()
    assert root.pid not in found and os.getpid() not in found
    child = found[root.pids[0]]
    assert child[0] in "SRD" and child[1] in ("sh", "sleep")


def test_a_name_may_hold_anything(nursery: Start) -> None:
    root = nursery("echo $$; printf ') Z 1 (' >/proc/$$/comm; echo $$; read never", count=2)
    assert tree.descendants(root.pid)[root.pids[0]][1] == ") Z 1 ("
    assert tree.sweep(root.pid) == []


def test_a_sweep_leaves_nobody(nursery: Start, gone: Callable[[int], bool]) -> None:
    root = nursery(SLEEPER, IN_ITS_OWN_SESSION, ORPHAN, DEAF, STOPPED, AGAIN_AND_AGAIN, count=6)
    assert tree.sweep(root.pid, bound=60) == []
    assert all(gone(pid) for pid in root.pids)
    assert not [name for state, name in tree.descendants(root.pid).values() if state not in "ZX"]
    assert not gone_now(root.pid)


def test_a_strike_hits_what_it_has_seen_if_that_is_still_wanted(nursery: Start, gone: Callable[[int], bool]) -> None:
    root = nursery(SLEEPER, IN_ITS_OWN_SESSION, ORPHAN, count=3)
    kept = root.pids[0]
    assert not tree.strike(root.pid, (), lambda: False)
    assert living(root.pids, root.pid) == set(root.pids)
    assert tree.strike(root.pid, (kept,), lambda: True)
    assert all(gone(pid) for pid in root.pids[1:])
    assert living(root.pids, root.pid) == {kept} and not gone_now(root.pid)
    assert not tree.strike(root.pid, (kept,), lambda: True)


def gone_now(pid: int) -> bool:
    """Return whether the process has ended."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"


def test_a_process_whose_first_thread_has_ended_is_no_corpse(nursery: Start, gone: Callable[[int], bool]) -> None:
    root = nursery(HEADLESS, count=1)
    while not gone_now(root.pids[0]):  # pytest-timeout bounds it
        os.sched_yield()
    assert tree.sweep(root.pid, bound=60) == []
    assert gone(root.pids[0])


def test_what_is_to_be_kept_stays_with_all_below_it(nursery: Start, gone: Callable[[int], bool]) -> None:
    root = nursery("echo $$; sh -c 'echo $$; exec sleep 600'; :", count=2)
    kept, below = root.pids
    victim = nursery(SLEEPER, IN_ITS_OWN_SESSION, count=2)
    assert tree.sweep(root.pid, keep=[kept], bound=60) == []
    assert living(root.pids, root.pid) == {kept, below}
    assert tree.sweep(victim.pid, keep=[victim.pids[0]], bound=60) == []
    assert gone(victim.pids[1])
    assert living(victim.pids, victim.pid) == {victim.pids[0]}


def test_an_empty_tree_is_swept_at_once(nursery: Start) -> None:
    assert tree.sweep(nursery(count=0).pid) == []


def test_a_sweep_without_time_still_kills(nursery: Start, gone: Callable[[int], bool]) -> None:
    root = nursery(DEAF, count=1)
    assert set(tree.sweep(root.pid, bound=0)) <= set(root.pids)
    assert gone(root.pids[0])


def test_many_processes_are_swept(nursery: Start) -> None:
    root = nursery("for i in $(seq 300); do sleep 600 & done; echo $$; wait", count=1)
    assert len(tree.descendants(root.pid)) == 301
    assert tree.sweep(root.pid, bound=60) == []
    assert not living(tree.descendants(root.pid), root.pid)


def test_a_pid_that_belongs_to_somebody_else_by_now_is_not_hit(nursery: Start) -> None:
    root = nursery(SLEEPER, count=1)
    start = tree.living(root.pid, ())[root.pids[0]].start
    assert tree._kill(root.pids[0], start - 1) is None
    assert living(root.pids, root.pid) == set(root.pids)


def test_orphans_are_reaped_and_known_children_left_to_their_owners(python_path: None) -> None:
    code = """
import os, subprocess
from ft_supervisor.process import tree
tree.become_subreaper()
known = subprocess.Popen(["true"])
orphan = int(subprocess.check_output(["sh", "-c", "(sh -c 'echo $$; exit 3' &)"]))
for pid in (known.pid, orphan):
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
assert tree.reap_orphans([known.pid]) == [orphan]
assert tree.reap_orphans([known.pid]) == []
assert known.wait() == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("child", ["", "child = subprocess.Popen(['sleep', '600'])"])
def test_without_dead_children_no_orphan_is_looked_for(python_path: None, child: str) -> None:
    """A scan of /proc takes tens of milliseconds on a big machine, and most scans would find no orphan."""
    code = f"""
import subprocess
from ft_supervisor.process import tree
{child}
tree.scan = None
assert tree.reap_orphans(()) == []
if {bool(child)}:
    child.kill()
    child.wait()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_file_descriptors_nobody_says_that_nothing_is_left(python_path: None) -> None:
    code = """
import errno, os, resource, subprocess
from ft_supervisor.process import tree
tree.become_subreaper()
child = subprocess.Popen(["sleep", "600"])
before = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
for look in (lambda: tree.stat(child.pid), tree.scan, lambda: tree.sweep(os.getpid(), bound=0.2)):
    try:
        raise AssertionError(look())
    except OSError as error:
        assert error.errno == errno.EMFILE, error
assert child.poll() is None
resource.setrlimit(resource.RLIMIT_NOFILE, before)
assert tree.stat(2**30) is None
assert tree.sweep(os.getpid(), bound=60) == []
assert child.wait() == -9
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("name", ["pdeath_command", "own_pdeath_command"])
def test_a_worker_dies_with_its_parent(name: str, python_path: None, gone: Callable[[int], bool]) -> None:
    code = f"""
import subprocess, sys
from ft_supervisor.process import tree
subprocess.Popen(tree.{name}(["sh", "-c", "trap '' TERM; echo $$; exec sleep 600"]))
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            worker = int(parent.stdout.readline())
            assert not gone_now(worker)
        finally:
            parent.send_signal(signal.SIGKILL)
    assert gone(worker)


@pytest.mark.parametrize("command", [tree.pdeath_command, tree.own_pdeath_command])
def test_a_wrapped_command_gets_its_arguments_environment_and_exit_code(
    command: Callable[[list[str]], list[str]],
) -> None:
    line = command(["sh", "-c", 'echo "$1" "$A"; exit 5', "sh", "a  b"])
    done = subprocess.run(line, env={**os.environ, "A": "-x"}, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("a  b -x\n", 5)


def test_the_wrapper_starts_nothing_for_a_parent_that_is_gone() -> None:
    line = tree.own_pdeath_command(["echo", "started"])
    line[line.index(str(os.getpid()))] = "1000000000"
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("", 1)
    assert "not starting echo" in done.stderr


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_the_wrapper_says_what_it_could_not_start(program: str, code: int) -> None:
    done = subprocess.run(tree.own_pdeath_command([program]), capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert done.stderr.startswith(f"{program}: ")


def test_a_refused_prctl_is_an_error() -> None:
    with pytest.raises(OSError, match=r"prctl\(-1\)"):
        prctl._prctl(-1, 0)
