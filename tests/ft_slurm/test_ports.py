"""Tests which ports a step's store tries, and that the next one is free when the first is taken."""

import socket
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ft_slurm.environment import StepEnvironment
from ft_slurm.ports import FIRST, LAST, TRIES, candidates

# A busy machine is no failure.
UNTIMED = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
STEP = StepEnvironment(
    job_id=42,
    step_id=0,
    restart_count=0,
    node_name="n0",
    nodes=("n0",),
    infra_rank=0,
    submit_dir=Path("/"),
    cluster=None,
    reserved_ports=(),
    topology_addr=None,
    topology_pattern=None,
    addresses=MappingProxyType({}),
    end_time=None,
)


def test_reserved_before_configured_before_hashed() -> None:
    reserved = replace(STEP, reserved_ports=(12000, 12001))
    assert candidates(reserved, 15000) == tuple(range(12000, 12008))
    assert candidates(STEP, 15000) == tuple(range(15000, 15008))
    assert candidates(STEP, None)[0] >= FIRST


def test_the_hash_is_fixed() -> None:
    """Nodes of one job may run different builds of Python: the ports must depend on the ids alone."""
    assert candidates(STEP, None) == candidates(replace(STEP, restart_count=3, node_name="other"), None)
    assert candidates(STEP, None)[0] == 29649


def test_ports_end_at_the_last_there_is() -> None:
    assert candidates(STEP, 65533) == (65533, 65534, 65535)


def test_two_jobs_and_two_steps_on_a_node_get_ports_of_their_own() -> None:
    firsts = [candidates(replace(STEP, job_id=job, step_id=step), None)[0] for job in range(50) for step in range(2)]
    assert len(set(firsts)) > 95


@UNTIMED
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_hashed_ports_lie_below_the_ephemeral_ones(job: int, step: int) -> None:
    ports = candidates(replace(STEP, job_id=job, step_id=step), None)
    assert len(ports) == TRIES
    assert ports[0] >= FIRST
    assert ports[-1] <= LAST


def test_a_taken_port_leaves_others_to_try() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = candidates(STEP, min(taken.getsockname()[1], 65535 - TRIES))
        assert any(_can_listen(port) for port in ports[1:])


def _can_listen(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
