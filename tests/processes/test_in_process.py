"""`workers.restart: in_process` in whole jobs: functions are called again in the same processes after a failure."""

import sys

import pytest
from tests.processes.harness import QUICK, StartJob, until
from tests.processes.in_process import pids, settings, succeed, tell, usage

# -- workers that go on, and new ones


@pytest.mark.parametrize("restarts", [3, pytest.param(50, marks=pytest.mark.slow("the same with 3"))])
def test_one_raises_and_all_go_on_in_their_processes(start: StartJob, restarts: int) -> None:
    job = start(nodes=2, active=2, **settings(max_restarts=100))
    first, used = pids(job, range(4)), []
    for restart in range(restarts):
        tell(job, restart % 4, f"raise ValueError('failure {restart}')")
        assert pids(job, range(4), restart + 1) == first
        used.append([usage(pid) for pid in first])
        decided = job.wait("restart", cycle=f"0.{restart}")
        assert (decided["how"], decided["why"]) == ("in_process", "allowed")
        assert f": ValueError: failure {restart}" in decided["reason"]
        made = job.all("workers_made", cycle=f"0.{restart + 1}")
        assert [(line["in_process"], line["warm"], line["cold"]) for line in made] == [("2", "0", "0")] * len(made)
    for before, after in zip(used[min(4, restarts - 1)], used[-1], strict=True):
        assert after[:2] <= before[:2] and after[2] <= before[2] + 10
    succeed(job, restarts)
    assert not job.all("not_parked") and len(job.all("returned")) == 4


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), 9)",
        pytest.param("os._exit(3)", marks=pytest.mark.slow("the same with SIGKILL")),
        pytest.param("os.kill(os.getpid(), 11)", marks=pytest.mark.slow("the same with SIGKILL")),
        pytest.param("sys.exit(42)", marks=pytest.mark.slow("the same with SIGKILL")),
    ],
)
def test_one_dies_and_it_alone_is_new(start: StartJob, end: str) -> None:
    job = start(nodes=2, active=2, **settings())
    first = pids(job, range(4))
    tell(job, 1, end)
    second = pids(job, range(4), 1)
    assert [old == new for old, new in zip(first, second, strict=True)] == [True, False, True, True]
    assert [(line["in_process"], line["cold"]) for line in job.all("workers_made", "node0")] == [("0", "2"), ("1", "1")]
    assert job.wait("restart")["how"] == "in_process"
    succeed(job, 1)


def test_a_warm_worker_takes_the_place_of_one_that_dies(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings(preload=["json"]))
    first = pids(job, range(2))
    until(lambda: len(job.all("warm_worker_ready")) >= 3, "warm workers beside the running ones")
    before = set(job.processes())
    tell(job, 0, "os.kill(os.getpid(), 9)")
    second = pids(job, range(2), 1)
    assert second[0] != first[0] and second[0] in before and second[1] == first[1]
    made = job.wait("workers_made", cycle="0.1")
    assert (made["in_process"], made["warm"], made["cold"]) == ("1", "1", "0")
    tell(job, 0, "raise ValueError")  # one that was started warm can be parked, too
    assert pids(job, range(2), 2) == second
    succeed(job, 2)


def test_torch_does_not_end_a_process_because_a_group_of_it_fails(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings(env={"TORCH_NCCL_ENABLE_MONITORING": "1"}))
    names = "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING"
    tell(job, 0, f"say('env', asynchronous=os.environ['{names[0]}'], monitoring=os.environ['{names[1]}'])")
    found = job.wait("env")
    assert (found["asynchronous"], found["monitoring"]) == ("0", "1")  # what the job says wins
    succeed(job, 0)


def test_a_failure_before_any_progress_means_new_processes(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings(per_node=1))
    tell(job, 0, "say('fails'); raise ValueError", when="initialize")
    decided = job.wait("restart")
    assert (decided["how"], decided["why"]) == ("process", "before_progress")
    assert "in initialize" in decided["reason"]
    assert pids(job, range(1), 1) != [int(job.wait("fails")["pid"])]
    assert job.wait("workers_made", cycle="0.1")["cold"] == "1"
    succeed(job, 1)


def test_ready_is_progress_also_if_the_failure_follows_at_once(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings(per_node=1))
    ready = "notify.connect(os.environ['NOTIFY_SOCKET'].replace('@', chr(0), 1)); notify.send(b'READY=1')"
    code = f"import socket; notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); {ready}; raise ValueError"
    tell(job, 0, code, when="initialize")
    decided = job.wait("restart")
    assert (decided["how"], decided["why"]) == ("in_process", "allowed")
    pids(job, range(1), 1)
    succeed(job, 1)


def test_a_hook_after_the_function_that_fails_costs_that_process_only(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings())
    first = pids(job, range(2))
    tell(job, 1, "raise RuntimeError('broken')", when="health_check")
    tell(job, 0, "raise ValueError")
    second = pids(job, range(2), 1)
    assert second[0] == first[0] and second[1] != first[1]
    succeed(job, 1)


# -- spares


def test_a_spare_waits_in_the_function_and_is_promoted(start: StartJob) -> None:
    job = start(nodes=3, active=2, **settings(timeouts=QUICK))
    first = pids(job, range(4))
    until(lambda: len(job.all("spare_ready", "node2")) == 2, "the spare's workers")
    waiting = set(job.processes("node2"))
    job.kill_nodes("node1")
    second = pids(job, range(4), 1)
    assert second[:2] == first[:2] and set(second[2:]) <= waiting
    assert job.wait("workers_made", "node2", cycle="0.1")["in_process"] == "2"
    tell(job, 3, "raise ValueError")
    assert pids(job, range(4), 2) == second
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.2 exited with 0", dead=["node1"])
    assert "restart=1" in (job.run_folder / "logs" / "0.1" / "rank2.log").read_text()


def test_a_spare_drops_its_parked_worker_when_all_workers_of_the_others_are_new(start: StartJob) -> None:
    wanted = settings(per_node=1, timeouts=QUICK)
    new = {"match": {"exception": ["KeyError"]}, "action": "restart", "how": "process"}
    wanted["policy"]["failures"].insert(0, new)
    job = start(nodes=3, active=2, **wanted)
    first = pids(job, range(2))
    job.wait("spare_ready", "node2")
    before = set(job.processes("node2"))
    tell(job, 0, "raise KeyError")
    second = pids(job, range(2), 1)
    assert not set(first) & set(second)
    decided = job.wait("restart")
    assert (decided["how"], decided["why"]) == ("process", "rule")
    until(lambda: len(job.all("spare_ready", "node2")) == 2, "another worker of the spare")
    waiting = set(job.processes("node2")) - before
    job.kill_nodes("node1")
    third = pids(job, range(2), 2)
    assert third[0] == second[0] and third[1] in waiting
    assert job.wait("workers_made", "node2", cycle="0.2")["in_process"] == "1"
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.2 exited with 0", dead=["node1"])


def test_a_spare_whose_script_needs_its_rank_first_has_warm_workers(start: StartJob) -> None:
    job = start(nodes=3, active=2, **settings("reads-rank", per_node=1, timeouts=QUICK, preload=["json"]))
    first = pids(job, range(2))
    job.wait("spare_start_failed", "node2")
    job.wait("warm_worker_ready", "node2")
    waiting = set(job.processes("node2"))
    job.kill_nodes("node1")
    second = pids(job, range(2), 1)
    assert second[0] == first[0] and second[1] in waiting
    assert job.wait("workers_made", "node2")["warm"] == "1"
    assert len(job.all("spare_start_failed")) == 1
    job.finish()
    job.assert_end(0, "success", dead=["node1"])


def test_a_script_that_trains_alone_without_a_rank_does_not_do_so_on_a_spare(start: StartJob) -> None:
    code = (
        "import os, time; rank = int(os.environ.get('RANK', '0')); print(f'event=worker rank={rank}'); time.sleep(1000)"
    )
    keys = settings(per_node=1)
    keys["job"]["workers"]["command"] = [sys.executable, "-S", "-u", "-c", code]
    job = start(nodes=2, active=1, **keys)
    job.wait("worker", "node0")
    job.wait("spare_start_failed", "node1")
    assert not job.all("worker", "node1")


# -- workers that have to be killed


@pytest.mark.parametrize(
    "stubborn",
    [
        "while True:\n try:\n  while True: time.sleep(1)\n except BaseException: pass",
        pytest.param("import ctypes; ctypes.PyDLL(None).sleep(1000)", marks=pytest.mark.slow("the same")),
        pytest.param("with worker.atomic(): time.sleep(1000)", marks=pytest.mark.slow("the same")),
    ],
)
def test_one_that_does_not_leave_its_function_in_time_is_killed(start: StartJob, stubborn: str) -> None:
    job = start(nodes=2, active=2, **settings())
    first = pids(job, range(4))
    tell(job, 2, f"say('stuck')\n{stubborn}")
    job.wait("stuck")
    tell(job, 1, "raise ValueError")
    second = pids(job, range(4), 1)
    assert [old == new for old, new in zip(first, second, strict=True)] == [True, True, False, True]
    assert job.wait("not_parked", "node1", local_rank=0)["why"] == "it was not parked in time"
    succeed(job, 1)


def test_an_atomic_section_is_finished_first(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings())
    first = pids(job, range(2))
    tell(job, 1, "with worker.atomic():\n say('open'); time.sleep(1); say('finished')\nsay('beyond')")
    job.wait("open")
    tell(job, 0, "raise ValueError")
    assert pids(job, range(2), 1) == first
    assert job.all("finished", restart=0) and not job.all("beyond")
    succeed(job, 1)


LEAVES_CHILD = "import subprocess; child = subprocess.Popen(['sleep', '1000']); say('child', child=child.pid)\n"


def test_a_worker_that_leaves_a_child_is_killed_with_it(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings())
    first = pids(job, range(2))
    tell(job, 1, LEAVES_CHILD + "raise ValueError")
    child = int(job.wait("child")["child"])
    second = pids(job, range(2), 1)
    assert second[0] == first[0] and second[1] != first[1]
    assert child not in job.processes()
    assert job.wait("not_parked")["why"] == f"left behind: processes {child} (sleep)"
    succeed(job, 1)


def test_a_child_that_is_kept_lives_on_and_an_orphan_does_not(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings())
    first = pids(job, range(2))
    orphan = "subprocess.run(['setsid', '-f', 'sleep', '2000'])\n"
    tell(job, 1, LEAVES_CHILD + orphan + "worker.keep(child)\nsay('kept')\nraise ValueError")
    child = int(job.wait("child")["child"])
    assert pids(job, range(2), 1) == first
    assert child in job.processes() and not any("sleep 2000" in command for command in job.processes().values())
    tell(job, 0, "raise ValueError")
    assert pids(job, range(2), 2) == first and child in job.processes()
    succeed(job, 2)


def test_a_worker_that_leaves_a_thread_is_killed(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings())
    first = pids(job, range(2))
    thread = "threading.Thread(target=time.sleep, args=[1000], name='writer', daemon=True).start()"
    tell(job, 0, f"import threading; {thread}\nraise ValueError")
    second = pids(job, range(2), 1)
    assert second[0] != first[0] and second[1] == first[1]
    assert job.wait("not_parked")["why"] == "left behind: threads writer"
    succeed(job, 1)


def test_a_connection_to_the_old_store_costs_the_process_and_another_one_does_not(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings())
    first = pids(job, range(2))
    store = (
        "import socket\nserver = socket.create_server(('127.0.0.1', {port}))\n"
        "memory['ends'] = (server, socket.create_connection(server.getsockname()))\n"
    )
    tell(job, 0, store.format(port=0) + "say('connected')")
    job.wait("connected", rank=0)
    # the library shuts what it finds: this one is made later, as by a hook with a bug
    tell(job, 1, store.format(port="int(os.environ['MASTER_PORT'])") + "say('connected')", when="finalize")
    tell(job, 0, "raise ValueError")
    second = pids(job, range(2), 1)
    assert second[0] == first[0] and second[1] != first[1]
    assert job.wait("not_parked", local_rank=1)["why"] == "left behind: a connection to the cycle's store"
    succeed(job, 1)


# -- functions and processes that behave unusually


def test_one_that_swallows_the_exception_once_leaves_a_second_later(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings())
    first = pids(job, range(2))
    tell(job, 1, "try:\n say('there'); time.sleep(1000)\nexcept BaseException:\n say('swallowed')\ntime.sleep(1000)")
    job.wait("there")
    tell(job, 0, "raise ValueError")
    assert pids(job, range(2), 1) == first
    assert job.all("swallowed", restart=0)
    succeed(job, 1)


def test_an_exception_of_one_that_is_being_stopped_is_no_failure(start: StartJob) -> None:
    job = start(nodes=2, active=2, **settings(per_node=1))
    first = pids(job, range(2))
    tell(job, 1, "try:\n say('there'); time.sleep(1000)\nfinally:\n time.sleep(0.5); raise RuntimeError('an echo')")
    job.wait("there")
    tell(job, 0, "raise ValueError('the cause')")
    assert pids(job, range(2), 1) == first
    assert len(job.all("worker_failed")) == 1 and "the cause" in job.wait("restart")["reason"]
    succeed(job, 1)


def test_a_forked_child_that_raises_never_speaks_for_its_parent(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings())
    first = pids(job, range(2))
    child = "if (child := os.fork()) == 0: raise RuntimeError('in the child')\nos.waitpid(child, 0); say('reaped')"
    tell(job, 1, child)
    job.wait("reaped")
    assert not job.all("worker_failed") and not job.all("control_refused")
    tell(job, 0, "raise ValueError")
    assert pids(job, range(2), 1) == first
    succeed(job, 1)


def test_one_that_has_exited_with_0_is_replaced_when_another_fails(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings())
    first = pids(job, range(2))
    tell(job, 0, "os._exit(0)")
    until(lambda: first[0] not in job.processes(), "its end")
    tell(job, 1, "raise ValueError")
    second = pids(job, range(2), 1)
    assert second[0] != first[0] and second[1] == first[1]
    succeed(job, 1)


def test_one_that_hangs_goes_on_in_its_process(start: StartJob) -> None:
    keys = settings(per_node=1)
    keys["job"]["hang"] = {"after": "5s"}
    job = start(nodes=2, active=2, **keys)
    first = pids(job, range(2))
    tell(job, 1, "say('hangs'); time.sleep(1000)")
    assert "hangs" in job.wait("restart")["reason"]
    assert pids(job, range(2), 1) == first
    assert (job.run_folder / "stacks" / "0.0" / "1.txt").exists()
    succeed(job, 1)
