"""Stands in for a daemon under `local`, doing what $FAKE_PLAN says for its node, "NODE:WORD ..." or "WORD ..." for all.

verdict: writes the job's as the coordinator's node would. orphan: leaves a process of a session of its own. hang: until
SIGTERM or SIGINT, then exits with 130. deaf: no signal but SIGKILL ends it. A number: exits with it.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from ft_slurm import environment
from ft_supervisor.core.model import Outcome, Verdict
from ft_supervisor.observe import verdict_file

STEP = environment.read(os.environ)


def hang(deaf: bool) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    print("hangs", flush=True)
    while True:
        number = signal.sigwait({signal.SIGINT, signal.SIGTERM})
        print("got", signal.Signals(number).name, flush=True)
        if not deaf:
            sys.exit(130)


def main() -> None:
    print(f"2026-11-21T12:00:00.000Z info event=active group_rank={STEP.infra_rank} node=x proc=agent", flush=True)
    for part in os.environ["FAKE_PLAN"].split():
        node, _, word = part.rpartition(":")
        if node not in ("", STEP.node_name):
            continue
        match word:
            case "verdict":
                verdict = Verdict(Outcome.SUCCESS, "as planned")
                folder = Path("runs") / str(STEP.job_id) / STEP.run_id
                verdict_file.write(folder, verdict, STEP.run_id, os.environ["FT_SUPERVISOR_NONCE"])
            case "orphan":
                orphan = subprocess.Popen(["sleep", "1000"], start_new_session=True)
                print("orphan", orphan.pid, flush=True)
            case "hang" | "deaf":
                hang(word == "deaf")
            case _:
                sys.exit(int(word))


main()
