"""`workers.restart: in_process` in whole jobs: which rung follows a failure, from the same process to the verdict."""

import os
import signal
from itertools import pairwise

from tests.processes.harness import StartJob, until
from tests.processes.in_process import pids, settings, succeed, tell
from tests.processes.lines import Line


def test_one_that_hangs_with_the_interpreter_locked_is_replaced_by_a_warm_one(start: StartJob) -> None:
    keys = settings(per_node=1, preload=["json"])
    keys["job"]["hang"] = {"after": "3s", "first": "60s"}
    job = start(nodes=2, active=2, **keys)
    first = pids(job, range(2))
    until(lambda: len(job.all("warm_worker_ready", "node1")) == 2, "a warm worker beside the running one")
    before = set(job.processes("node1"))
    tell(job, 1, "import ctypes; say('hangs'); ctypes.PyDLL(None).sleep(1000)")
    second = pids(job, range(2), 1)
    assert second[0] == first[0] and second[1] != first[1] and second[1] in before
    assert job.wait("not_parked", "node1")["why"] == "it was not parked in time"
    hung, killed = job.wait("hang_explained"), job.wait("not_parked", "node1")
    assert killed.at - hung.at > 1  # timeouts.quiesce is 2 s
    failure = "rank 1 (node1, local 0) hangs: it alone sent no heartbeat"
    assert job.wait("first_failure")["failure"].startswith(failure)
    assert first[1] not in job.processes()
    assert [(line["in_process"], line["warm"]) for line in job.all("workers_made", cycle="0.1")] in (
        [("1", "0"), ("0", "1")],
        [("0", "1"), ("1", "0")],
    )
    succeed(job, 1)


ENDS_SLOWLY = """
import atexit, signal
def broken(*_):
    raise RuntimeError('broken')
signal.signal(signal.SIGUSR1, broken)
atexit.register(time.sleep, 1000)
say('ready')
"""


def test_a_parked_process_that_breaks_takes_no_part_in_the_next_cycle(start: StartJob) -> None:
    job = start(nodes=3, active=3, **settings(per_node=1, quiesce="60s"))
    first = pids(job, range(3))
    tell(job, 1, ENDS_SLOWLY)
    tell(job, 0, "with worker.atomic():\n say('ready')\n while not Path('go').exists(): time.sleep(0.01)")
    for rank in range(2):
        job.wait("ready", rank=rank)
    standby = len(job.all("standby", "node1"))
    tell(job, 2, "raise ValueError")
    until(lambda: len(job.all("standby", "node1")) > standby, "rank 1 is parked")
    os.kill(first[1], signal.SIGUSR1)
    assert job.wait("not_parked", "node1")["why"] == "it cannot be used again: RuntimeError: broken"
    (job.folder / "go").touch()
    second = pids(job, range(3), 1)
    assert second[::2] == first[::2] and second[1] != first[1] and first[1] not in job.processes()
    assert len(job.all("worker_failed")) == len(job.all("not_parked")) == 1 and not job.all("spare_start_failed")
    succeed(job, 1)


def test_the_rungs_in_their_order(start: StartJob) -> None:
    """The same worker fails again and again: after progress, beyond the budget, before any progress, then anywhere."""
    keys = settings(per_node=1)
    budget = {"max": 5, "window": "1h", "same_node": 3, "in_process": {"max": 1, "window": "10m"}}
    keys["policy"]["failures"] = [{"match": "any", "action": "restart", "budget": budget}]
    job = start(nodes=3, active=2, **keys)
    fail = "raise ValueError('the same')"
    made = [pids(job, range(2))]
    for restart in (1, 2, 4, 5):
        if restart == 4:
            # Else it might make progress before the other fails. In a later cycle it goes on at once.
            tell(job, 0, "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '3': time.sleep(1000)", when="initialize")
            tell(job, 1, fail, when="initialize")
        tell(job, 1, fail)
        made.append(pids(job, range(2), restart))
    tell(job, 1, fail)
    job.assert_end(1, "failed", "5 restarts spent within 3600 s: rank 1 (node2, local 0): ValueError: the same")
    decided = [line for line in job.lines if line.event in ("restart", "replace_node", "verdict")]
    assert [(line.event, *(field(line, name) for name in ("how", "why", "replaced"))) for line in decided] == [
        ("restart", "in_process", "allowed", ""),
        ("restart", "process", "budget", ""),
        ("restart", "process", "budget", ""),
        ("replace_node", "process", "before_progress", "node1"),
        ("restart", "process", "budget", ""),
        ("verdict", "", "", ""),
    ]
    assert made[0] == made[1] and not any(set(one) & set(other) for one, other in pairwise(made[1:]))


def field(line: Line, name: str) -> str:
    """Return the value of a field that may be absent."""
    return dict(line.fields).get(name, "")
