"""Computes the TCP ports that a step's store may listen on. Every node computes the same ports, without a message."""

from hashlib import blake2b

from ft_slurm.environment import StepEnvironment

TRIES = 8
# Above the registered services that clusters use, below Linux's ephemeral ports, which start at 32768.
FIRST, LAST = 20000, 29999


def candidates(step: StepEnvironment, configured: int | None) -> tuple[int, ...]:
    """Return the ports in the order in which to try them: the first 8, fewer at the upper end of the port numbers.

    They start at the first port that Slurm reserved for the step (`srun --resv-ports`, or the site's MpiParams), else
    at the configured one, else at a fixed hash of job and step, so that two jobs on one node seldom meet. Where they
    do, the coordinator takes the next port, and clients recognize their store by its run_id.
    """
    if step.reserved_ports:
        first = step.reserved_ports[0]
    elif configured is not None:
        first = configured
    else:
        digest = blake2b(f"{step.job_id}.{step.step_id}".encode(), digest_size=8).digest()
        first = FIRST + int.from_bytes(digest, "big") % (LAST - FIRST - TRIES + 2)
    return tuple(range(first, min(first + TRIES, 65536)))
