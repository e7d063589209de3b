"""Stands in for srun: records how it was called, then follows $FAKE_PLAN, one word after the other.

success, failed: writes the verdict, as the coordinator's node would. told: a success, with its summary. late: the same
after its own end. foreign: one with another nonce. hang: until a signal, SIGINT being answered by a verdict. deaf: no
signal but SIGKILL ends it. A number: exits with it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.core.protocol.summary import head
from ft_supervisor.run_folder import verdict_file

RUN_ID = f"{os.environ['SLURM_JOB_ID']}.3.{os.environ.get('SLURM_RESTART_COUNT', '0')}"


def write(outcome: Outcome, nonce: str = os.environ["FT_SUPERVISOR_NONCE"], summary: str = "") -> None:
    folder = Path("runs") / os.environ["SLURM_JOB_ID"] / RUN_ID
    verdict_file.write(folder, Verdict(outcome, "as planned"), RUN_ID, nonce, summary)


def hang(deaf: bool) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    Path("hangs").touch()
    while True:
        number = signal.sigwait({signal.SIGINT, signal.SIGTERM})
        with Path("signals").open("a") as file:
            file.write(f"{signal.Signals(number).name}\n")
        if deaf:
            continue
        if number == signal.SIGTERM:
            sys.exit(143)
        write(Outcome.CANCELLED)
        sys.exit(1)


def main() -> None:
    stdin = sys.stdin.read()
    per_task = [name for name in os.environ if name.endswith("_PER_TASK")]
    told = {"argv": sys.argv[1:], "nonce": os.environ["FT_SUPERVISOR_NONCE"], "stdin": stdin, "pid": os.getpid()}
    Path("srun.json").write_text(json.dumps(told | {"per_task": per_task}))
    for word in os.environ["FAKE_PLAN"].split():
        match word:
            case "success" | "failed":
                write(Outcome(word))
            case "told":
                write(Outcome.SUCCESS, summary=f"{head(Verdict(Outcome.SUCCESS, ''), RUN_ID)}, 2 cycles")
            case "late":
                subprocess.Popen([sys.executable, __file__, "--after", str(os.getpid())])
            case "foreign":
                write(Outcome.SUCCESS, "another")
            case "hang" | "deaf":
                hang(word == "deaf")
            case _:
                sys.exit(int(word))


def after(pid: int) -> None:
    while os.getppid() == pid:
        time.sleep(0.01)
    write(Outcome.SUCCESS)


if __name__ == "__main__":
    if sys.argv[1] == "--after":
        after(int(sys.argv[2]))
    else:
        main()
