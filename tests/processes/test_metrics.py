"""Metrics of a real job, scraped while it runs, loses a worker, and loses its coordinator."""

from __future__ import annotations

import os
import signal
import socket
import urllib.request

from prometheus_client.parser import text_string_to_metric_families
from tests.processes.harness import BOUND, Job, StartJob, until
from tests.processes.lines import Line

from ft_supervisor.process.ports import free_port

Values = dict[tuple[str, str], float]


def scrape(served: Line) -> Values:
    """By the metric's name and its one label besides run_id (le and "" counted as one); {} while nothing is told."""
    try:
        with urllib.request.urlopen(f"http://{served['host']}:{served['port']}/metrics", timeout=BOUND) as response:
            text = response.read().decode()
    except OSError:
        return {}
    return {
        (sample.name.removeprefix("ft_supervisor_"), label(sample.labels)): sample.value
        for metric in text_string_to_metric_families(text)
        for sample in metric.samples
    }


def label(labels: dict[str, str]) -> str:
    return " ".join(value for key, value in sorted(labels.items()) if key not in ("run_id", "version", "node"))


def told(served: Line, **wanted: float) -> Values:
    """A scrape in which these have these values; "name__label" for one with a label."""
    names = {(name.partition("__")[0], name.partition("__")[2]): value for name, value in wanted.items()}
    last: list[Values] = []

    def holds() -> Values | None:
        last[:] = [scrape(served)]
        return last[0] if all(last[0].get(name) == value for name, value in names.items()) else None

    try:
        return until(holds, f"{wanted}")
    except AssertionError as error:
        raise AssertionError(f"{error}: { {name: last[0].get(name) for name in names} }") from None


def served_by(job: Job, node: str, times: int = 1) -> Line:
    """Where the node's coordinator says that it can be asked, once it has said so so often."""
    return until(lambda: next(iter(job.all("metrics_served", node)[times - 1 :]), None), f"metrics of {node}")


def test_scraped_through_a_failure_and_a_takeover(start: StartJob) -> None:
    port = free_port()
    job = start(nodes=3, active=2, candidates=3, policy={"metrics": {"listen": "loopback", "port": port}})
    workers = [job.worker(rank) for rank in (0, 1)]
    first = served_by(job, "node0")
    assert int(first["port"]) == port
    values = told(first, in_charge=1, cycles_total=1, nodes__active=2, nodes__standby=1, spares=1, phase__running=1)
    assert values["effective_training_time_ratio", ""] < 1
    assert values["restarts_total", "exit"] == values["takeovers_total", ""] == 0

    job.fail(workers[1])
    for rank in (0, 1):
        job.worker(rank, restart=1)
    values = told(first, cycles_total=2, restarts_total__exit=1, restart_seconds_count=1, cycle_number=1)
    assert values["detection_seconds_count", "exit"] == values["decision_seconds_count", ""] == 1
    assert 0 <= values["detection_seconds_sum", "exit"] < BOUND
    assert values["time_seconds", "first_start"] > 0 and values["time_seconds", "rendezvous"] >= 0
    assert values["budget_left", "1"] == 9

    others = {node: served_by(job, node) for node in ("node1", "node2")}
    for served in others.values():
        values = told(served, in_charge=0, cycles_total=0, takeovers_total=0)
        assert ("nodes", "active") not in values
    os.kill(job.pid("coordinator", "node0"), signal.SIGKILL)
    successor = until(lambda: next((line for line in job.all("in_charge", takeover=True)), None), "a successor").said
    after = others[successor] if successor in others else served_by(job, "node0", 2)
    told(after, in_charge=1, takeovers_total=1, nodes__active=2, cycle_number=1, cycles_total=0, budget_left__1=9)
    if successor != "node0":
        told(served_by(job, "node0", 2), in_charge=0, cycles_total=0)

    # Neither a scrape that hangs nor one that comes just then keeps the job from ending.
    with socket.create_connection((after["host"], port)) as hanging:
        hanging.sendall(b"GET /metrics HTTP/1.1\r\n")
        job.finish()
        job.assert_end(0, "success", "exited with 0")


def test_a_port_that_somebody_else_has_is_no_reason_to_fail(start: StartJob) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        job = start(nodes=1, active=1, policy={"metrics": {"listen": "0.0.0.0", "port": port}})
        assert job.wait("metrics_not_served", "node0")["port"] == str(port)
        job.worker(0)
        job.finish()
        job.assert_end(0, "success", "exited with 0")
    assert len(job.all("metrics_not_served", "node0")) == 1
