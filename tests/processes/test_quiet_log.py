"""What a job writes at the default `logs.level`, with all its real processes."""

from collections import Counter

import pytest
from tests.processes.harness import BOUND, StartJob

from ft_supervisor.process.log import LEAST_LEVEL


@pytest.mark.slow("simulation/test_quiet_log.py::test_the_lines_of_a_restart_do_not_grow_with_the_nodes")
def test_a_restart_is_the_coordinators_lines_alone(start: StartJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LEAST_LEVEL)
    job = start(nodes=4, active=3)
    job.fail(job.worker(1))
    for rank in range(3):
        job.worker(rank, restart=1)
    job.finish()
    job.local.wait(BOUND)
    job.end()
    ours = [line for line in job.lines if line.event != "worker" and line.event != "tick_late"]
    wanted = dict.fromkeys(("job", "policy", "in_charge", "majority", "cycle_failed", "first_failure"), 1)
    wanted |= {"restart": 1, "cycle_started": 2, "proposed": 1, "verdict": 1}
    assert Counter(line.event for line in ours) == wanted, job.output
