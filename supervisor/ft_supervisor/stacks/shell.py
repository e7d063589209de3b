"""Asks all nodes of a job what their workers do, and prints it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ft_supervisor.fault.messages import FaultError, NotThere, Refusal, error
from ft_supervisor.fault.transport import Transport
from ft_supervisor.run_folder.runs import Wanted
from ft_supervisor.stacks import render
from ft_supervisor.stacks.messages import MAX_BYTES, Ask, NodeDone, Told

BOUND = 60.0
"""Seconds for the first answer: srun may have to wait for the controller."""
STRAGGLERS = 10.0
"""Seconds for the others once one node has told all."""


def run(
    wanted: Wanted, rank: int | None, as_json: bool, environ: Mapping[str, str], put: Callable[[str], object]
) -> int:
    """Print the evidence. Return the exit code: 0, or 3 if the rank does not run. Raises FaultError."""
    request = Ask(wanted.job_id, wanted.step_id, wanted.restart_count, rank)
    told, silent = ask(Transport(wanted, str(wanted), environ), request)
    if not told:
        raise NotThere(f"no worker of job {wanted} runs on the nodes that have answered")
    if rank is not None and rank not in {one.rank for one in told}:
        put(render.text(told, silent, rank))
        raise NotThere(f"no worker of rank {rank} runs")
    put(render.as_json(told, silent) if as_json else render.text(told, silent, rank))
    return 0


def ask(transport: Transport, request: Ask) -> tuple[list[Told], list[str]]:
    """Return what the nodes tell, and the names of those that do not answer. Raises FaultError."""
    call, nodes = transport.everywhere("ft_supervisor.stacks.executor", request, (Told, NodeDone, Refusal), MAX_BYTES)
    told: list[Told] = []
    done: set[str] = set()
    until = time.monotonic() + BOUND
    try:
        while not nodes or done < set(nodes):
            answer = call.answer(until)
            if answer is None:
                break
            if isinstance(answer, Refusal):
                raise error(answer)
            if isinstance(answer, Told):
                told.append(answer)
            elif isinstance(answer, NodeDone):
                done.add(answer.node)
                until = min(until, time.monotonic() + STRAGGLERS)
    except FaultError:
        if not told:
            raise
    finally:
        call.end(force=True)
    return told, [node for node in nodes if node not in done]
