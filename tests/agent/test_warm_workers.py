"""Warm workers: what the job sees of them, and what becomes of them when something goes wrong."""

import json
import os
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.harness import BOUND, job, living_below, run, wait_until
from tests.agent.warm import (
    BEATS,
    DIFFER,
    FIRST,
    PYTHON,
    SECOND,
    WAITS,
    WITNESS,
    Start,
    events,
    failed,
    ready,
    script,
    seen,
    stopped,
)
from tests.process.living import lives

from ft_supervisor.core.protocol.actions import StopWorkers
from ft_supervisor.core.protocol.events import CannotStart, WorkersExited, WorkersGone
from ft_supervisor.core.protocol.model import Cycle


def test_a_worker_is_started_as_torch_starts_it(driven: Start, tmp_path: Path) -> None:
    settings = job(tmp_path, command=[*PYTHON, WITNESS, "seen.json", "${local_rank}", "$$x"])
    ours = seen(driven(settings), tmp_path)
    assert ours["argv"][2:] == ["0", "$$x"]
    settings = replace(settings, command=(*PYTHON, WITNESS, "seen.json", "0", "$$x"))
    driven(settings).call("by_torch", settings, run(FIRST, restart_count=1))
    theirs = json.loads((tmp_path / "seen.json").read_text())
    del theirs["environ"]["TORCHELASTIC_ERROR_FILE"], theirs["environ"]["FT_SUPERVISOR_AGENT_PID"]
    assert ours.pop("parent") and theirs.pop("parent")
    assert ours == theirs


@pytest.mark.parametrize(
    "command",
    [
        [*PYTHON, WITNESS],
        [*PYTHON, "-m", "tests.agent.witness"],
        ["env", "OTHER=1", sys.executable, "-B", "-u", "-X", "dev", WITNESS],
        ["nice", "-n", "1", sys.executable, "-I", "-S", WITNESS],
    ],
)
def test_a_warm_worker_sees_what_a_cold_one_sees(command: list[str], driven: Start, tmp_path: Path) -> None:
    env = (("PYTHONPATH", os.getcwd()), ("PYTHONHASHSEED", "5"))  # noqa: PTH109 - a text
    settings = job(tmp_path, command=[*command, "seen.json", "${local_rank}"], env=env)
    cold = seen(driven(settings), tmp_path)
    workers = driven(replace(settings, preload=("json", "ctypes")))
    ready(workers)
    warm = seen(workers, tmp_path)
    assert warm["parent"] == workers.pid and cold.pop("parent") and warm.pop("parent")
    assert warm["environ"].pop("FT_SUPERVISOR_SOCKET").startswith(("/", "@"))
    assert {name for name in cold if warm[name] != cold[name]} == DIFFER
    assert warm["stack"] == cold["stack"] + 2
    assert "ctypes" in warm["modules"] and set(cold["modules"]) <= set(warm["modules"])
    assert set(warm["initial environ"]) - {"FT_SUPERVISOR_SOCKET"} < set(cold["initial environ"])
    assert "RANK" not in warm["initial environ"] and "LOCAL_RANK" in warm["initial environ"]
    assert workers.made[0].warm == 1


def test_its_error_file_exit_code_and_files_are_those_of_its_cycle(driven: Start, tmp_path: Path) -> None:
    code = """
import json
print("rank", os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["FT_SUPERVISOR_CYCLE"])
there = "rank 0 of " + os.environ["FT_SUPERVISOR_CYCLE"]
if os.environ["RANK"] == "0": open(there, "w").close(); time.sleep(1000)
while not os.path.exists(there): time.sleep(0.01)
json.dump({"message": {"message": "ValueError: no loss"}}, open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
os.kill(os.getpid(), 11) if os.environ["FT_SUPERVISOR_CYCLE"] == "0.2" else sys.exit(3)
"""
    (tmp_path / "early.py").write_text("print('imported')")
    workers = driven(job(tmp_path, command=script(tmp_path, code), per_node=2, preload=("early",)))
    ready(workers, 2)
    workers.call("start", run(FIRST, restart_count=1))
    failure = failed(workers)
    assert (failure.local_rank, failure.exit_code, failure.message) == (1, 3, "ValueError: no loss")
    assert failure.last_lines == "imported\nrank 1 1 0.1"
    stopped(workers, FIRST)
    ready(workers, 4)
    workers.call("start", run(SECOND, restart_count=2))
    failure = failed(workers)
    assert (failure.local_rank, failure.signal, failure.message) == (1, "SIGSEGV", "ValueError: no loss")
    stopped(workers, SECOND)
    assert [made.warm for made in workers.made] == [2, 2]
    assert (tmp_path / "logs/0.1/rank1.log").read_text() == "imported\nrank 1 1 0.1\n"
    assert (tmp_path / "logs/0.2/rank0.log").read_text() == "imported\nrank 0 2 0.2\n"


def test_it_lives_on_when_the_cycle_ends_and_is_the_next_cycles_worker(driven: Start, tmp_path: Path) -> None:
    code = "open(os.environ['FT_SUPERVISOR_CYCLE'], 'w').write(str(os.getpid()))\nsys.stdin.read() or time.sleep(1000)"
    workers = driven(job(tmp_path, command=script(tmp_path, code), preload=("json",)))
    ready(workers)
    (first,) = living_below(workers.pid)
    assert workers.call("pids") == {}  # it is no worker yet
    workers.call("start", run(FIRST))
    assert workers.call("pids") == {0: first}
    wait_until(lambda: (tmp_path / "0.1").exists() and (tmp_path / "0.1").read_text() == str(first), "the script")
    assert json.loads((tmp_path / "worker-ranks.json").read_text()) == {str(first): 0}
    os.kill(first, signal.SIGKILL)
    assert failed(workers).signal == "SIGKILL"
    stopped(workers, FIRST)
    ready(workers, 2)
    (second,) = living_below(workers.pid)
    assert second != first
    workers.call("start", run(SECOND))
    wait_until(lambda: (tmp_path / "0.2").exists() and (tmp_path / "0.2").read_text() == str(second), "the script")
    stopped(workers, SECOND)


def test_beside_workers_they_start_one_after_another_once_these_train(driven: Start, tmp_path: Path) -> None:
    early = "import os, time\nwith open('imports', 'a') as f: f.write('+')\ntime.sleep(0.3)\n"
    early += "with open('imports', 'a') as f: f.write('-')"
    (tmp_path / "early.py").write_text(early)
    workers = driven(job(tmp_path, command=script(tmp_path, BEATS), per_node=3, preload=("early",)))
    ready(workers, 3)  # nothing runs here: all at once
    spares = set(living_below(workers.pid))
    workers.call("start", run(FIRST))
    assert set(workers.call("pids").values()) == spares
    (tmp_path / "imports").unlink()
    for rank in (0, 1):
        (tmp_path / f"train-{rank}").touch()
    for _ in range(10):
        workers.call("beats")
    assert set(living_below(workers.pid)) == spares  # one rank is not as far yet
    (tmp_path / "train-2").touch()
    wait_until(lambda: workers.call("beats") is not None and len(living_below(workers.pid)) > 3, "another")
    ready(workers, 6)
    assert (tmp_path / "imports").read_text() == "+-+-+-"
    assert len(living_below(workers.pid)) == 6
    os.kill(workers.call("pids")[1], signal.SIGKILL)
    assert failed(workers).local_rank == 1
    stopped(workers, FIRST)
    assert len(living_below(workers.pid)) == 3 and not spares & set(living_below(workers.pid))  # the sweep spares them


def test_an_order_during_the_import_waits_for_it(driven: Start, tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text(WAITS)
    workers = driven(job(tmp_path, command=script(tmp_path, "print('ran'); sys.exit(4)"), preload=("early",)))
    wait_until((tmp_path / "importing").exists, "the import")
    (pid,) = living_below(workers.pid)
    workers.call("start", run(FIRST))
    assert workers.call("pids") == {0: pid}
    for _ in range(10):
        workers.call("pids")
    assert living_below(workers.pid) == [pid]
    (tmp_path / "go").touch()
    failure = failed(workers)
    assert (failure.exit_code, failure.last_lines) == (4, "ran")
    stopped(workers, FIRST)


def test_an_order_during_the_import_that_is_taken_back(driven: Start, tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text(WAITS)
    workers = driven(job(tmp_path, command=script(tmp_path, "open('ran', 'w')"), preload=("early",)))
    wait_until((tmp_path / "importing").exists, "the import")
    (pid,) = living_below(workers.pid)
    workers.call("start", run(FIRST))
    workers.call("stop", StopWorkers(FIRST, BOUND, "SIGTERM"), "now")
    assert workers.event(WorkersGone).cycle == FIRST
    assert pid not in living_below(workers.pid)
    assert not events(workers.log(), "warm_worker_lost") and not events(workers.log(), "worker_failed")
    (tmp_path / "go").touch()
    ready(workers)
    assert not (tmp_path / "ran").exists()


def test_one_that_dies_while_it_imports_is_replaced_by_a_cold_start(driven: Start, tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text(f"{WAITS}print('what a pity', flush=True)\nos.kill(os.getpid(), 9)")
    code = "print('cold', 'early' in sys.modules); sys.exit(4)"
    workers = driven(job(tmp_path, command=script(tmp_path, code), preload=("early",)))
    wait_until((tmp_path / "importing").exists, "the import")
    workers.call("start", run(FIRST))
    (tmp_path / "go").touch()
    failure = failed(workers)
    assert (failure.exit_code, failure.last_lines) == (4, "cold False")
    (lost,) = events(workers.log(), "warm_worker_lost")
    assert lost["how"] == '"killed by SIGKILL"' and lost["printed"] == '"what a pity"' and lost["again_in"] == '"10 s"'
    stopped(workers, FIRST)
    assert workers.call("pids") == {} and living_below(workers.pid) == []  # the pause is not over
    assert (tmp_path / "logs/0.1/rank0.log").read_text() == "cold False\n"


def test_one_that_dies_while_it_waits_is_one_line(driven: Start, tmp_path: Path) -> None:
    workers = driven(job(tmp_path, command=script(tmp_path, "sys.exit(4)"), preload=("json",)))
    ready(workers)
    (pid,) = living_below(workers.pid)
    os.kill(pid, signal.SIGSEGV)
    wait_until(lambda: events(workers.log(), "warm_worker_lost"), "the line")
    workers.call("start", run(FIRST))
    assert failed(workers).exit_code == 4
    stopped(workers, FIRST)
    assert workers.made[0].cold == 1
    assert len(events(workers.log(), "warm_worker_lost")) == 1


def test_one_that_dies_when_the_order_comes(driven: Start, tmp_path: Path) -> None:
    workers = driven(job(tmp_path, command=script(tmp_path, "sys.exit(4)"), preload=("json",)))
    ready(workers)
    (pid,) = living_below(workers.pid)
    os.kill(pid, signal.SIGSTOP)
    workers.call("start", run(FIRST))
    assert workers.call("pids") == {0: pid}
    os.kill(pid, signal.SIGKILL)
    assert failed(workers).exit_code == 4
    assert len(events(workers.log(), "warm_worker_lost")) == 1
    stopped(workers, FIRST)


@pytest.mark.parametrize("during", ["import", "wait"])
def test_a_preload_that_cannot_work_is_one_line_and_cold_starts(during: str, driven: Start, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("class cuda:\n    @staticmethod\n    def is_initialized(): return True")
    (tmp_path / "early.py").write_text((WAITS if during == "import" else "") + "import torch")
    workers = driven(job(tmp_path, command=script(tmp_path, "sys.exit(4)"), per_node=2, preload=("early",)))
    if during == "import":
        wait_until((tmp_path / "importing").exists, "the import")
    else:
        wait_until(lambda: events(workers.log(), "preload_failed"), "the line")
    for cycle in (FIRST, SECOND):
        workers.call("start", run(cycle))
        (tmp_path / "go").touch()
        assert workers.event(WorkersExited).failures[0].exit_code == 4
        stopped(workers, cycle)
    lines = events(workers.log(), "preload_failed")
    assert 1 <= len(lines) <= 2 and lines[0]["reason"] == '"import early initializes CUDA"'
    assert events(workers.log(), "warm_worker_lost") == []
    assert workers.made[-1].cold == 2
    assert living_below(workers.pid) == []


def test_a_start_without_enough_file_descriptors_leaves_nothing_half_ordered(driven: Start, tmp_path: Path) -> None:
    workers = driven(job(tmp_path, command=script(tmp_path, "time.sleep(1000)"), per_node=3, preload=("json",)))
    ready(workers, 3)
    limits = resource.prlimit(workers.pid, resource.RLIMIT_NOFILE)
    outcomes = []
    for more in range(1, 40, 3):
        highest = max(map(int, workers.call("open_fds")))
        resource.prlimit(workers.pid, resource.RLIMIT_NOFILE, (highest + more, limits[1]))
        workers.call("start", run(Cycle(0, more)))
        resource.prlimit(workers.pid, resource.RLIMIT_NOFILE, limits)
        outcomes.append(len(workers.call("pids")))
        workers.call("stop", StopWorkers(Cycle(0, more), 0.0), "now")
        while not isinstance(event := workers.any_event(), WorkersGone):
            assert isinstance(event, CannotStart | WorkersExited)
    assert outcomes[0] < 3 and outcomes[-1] == 3
    workers.call("start", run(Cycle(0, 99)))
    assert set(workers.call("pids")) == {0, 1, 2}
    stopped(workers, Cycle(0, 99))


def test_a_fence_ends_them_too(driven: Start, tmp_path: Path) -> None:
    workers = driven(job(tmp_path, command=script(tmp_path, BEATS), preload=("json",)))
    ready(workers)
    workers.call("start", run(FIRST))
    (tmp_path / "train-0").touch()
    wait_until(lambda: workers.call("beats") is not None and len(living_below(workers.pid)) == 2, "a warm one")
    below = living_below(workers.pid)
    workers.call("kill")
    assert failed(workers).signal == "SIGKILL"
    wait_until(lambda: not any(map(lives, below)), "their end")
    stopped(workers, FIRST)
