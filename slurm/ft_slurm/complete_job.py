"""Calls slurm_complete_job of Slurm's own library. It runs as a program of its own, by path, because libslurm may hang,
and ends its own process on some errors (fatal()).

    python -I -S complete_job.py /usr/lib64/slurm/libslurmfull.so JOB_ID EXIT_CODE

prints one line: `completed`, `refused: WHY` (slurmctld's own answer), `unanswered: WHY` (trying again may help), or
`unusable: WHY` (this library cannot be used).

From slurm.h: up to 25.05 `int slurm_complete_job(uint32_t job_id, uint32_t job_return_code)`, from 25.11 on `int
slurm_complete_job(slurm_step_id_t *step_id, uint32_t job_return_code)`. The return code is a wait status (measured on
22.05 and 24.11: 75 << 8 gives sacct's ExitCode 75:0, plain 75 gives 0:75). The second prototype was called on 25.11 and
26.05 by hand once, with code 0; in the tests only against a library of our own.
"""

import ctypes
import signal
import sys
from collections.abc import Sequence

TIMEOUT = 60
"""Seconds until the parent ends this program; if the parent is gone, the program ends itself soon after. libslurm gives
up after 9 s when slurmctld is away (24.11, MessageTimeout=10)."""
STEP_ID_SINCE = 0x2C0000
"""slurm_api_version() of 25.11, the first release whose call takes a slurm_step_id_t."""
NO_VAL = 0xFFFFFFFE
FIRST_OF_SLURMCTLD = 2000
"""Error numbers from here up are slurmctld's answers. With a smaller one the call did not reach slurmctld
(slurm_errno.h)."""
ALREADY_DONE = 2021
"""ESLURM_ALREADY_DONE: the job has ended already, which is the result that we want."""


class StepId(ctypes.Structure):
    """slurm_step_id_t, 25.11 and later."""

    _fields_ = (
        ("sluid", ctypes.c_uint64),
        ("job_id", ctypes.c_uint32),
        ("step_het_comp", ctypes.c_uint32),
        ("step_id", ctypes.c_uint32),
    )


def complete(library: str, job_id: int, exit_code: int) -> str:
    """Return the line to print. The call may also end the process, or never return."""
    try:
        slurm = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL, use_errno=True)  # global: plug-ins look for its symbols
        slurm.slurm_init(None)
        slurm.slurm_api_version.restype = ctypes.c_long
        slurm.slurm_strerror.restype = ctypes.c_char_p
        job: object = ctypes.c_uint32(job_id)
        if slurm.slurm_api_version() >= STEP_ID_SINCE:
            job = ctypes.byref(StepId(0, job_id, NO_VAL, NO_VAL))
        failed = slurm.slurm_complete_job(job, ctypes.c_uint32(exit_code << 8))
        error = ctypes.get_errno()
        if not failed or error == ALREADY_DONE:
            return "completed"
        text = f"{slurm.slurm_strerror(error).decode(errors='replace')} ({error})"
    except (OSError, AttributeError) as problem:
        return f"unusable: {problem}"
    return f"refused: {text}" if error >= FIRST_OF_SLURMCTLD else f"unanswered: {text}"


def main(arguments: Sequence[str]) -> int:
    library, job_id, exit_code = arguments
    signal.alarm(TIMEOUT + 5)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the call itself causes one, before its answer is printed
    said = complete(library, int(job_id), int(exit_code))
    print(said, flush=True)
    return 0 if said == "completed" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
