"""Stands in for a daemon under `local` and follows $FAKE_PLAN for its node, "NODE:WORD ..." or "WORD ..." for all.

verdict: writes the job's as the coordinator's node would. own: the same in this node's own folder. orphan: leaves a
process of a session of its own. flood: prints 16 MiB in numbered lines. stop: stops itself. wait: for the file "go".
hang: until SIGTERM or SIGINT, then exits with 130. deaf: no signal but SIGKILL ends it. A number: exits with it.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from ft_slurm import environment
from ft_supervisor.core.protocol.model import JobPhase, Outcome, Verdict
from ft_supervisor.daemon.identity import local_folder
from ft_supervisor.process import atomic
from ft_supervisor.run_folder import verdict_file
from ft_supervisor.run_folder.snapshot import NAME, VERSION, CoordinatorStatus, NodeRole, NodeStatus, Snapshot, dump

STEP = environment.read(os.environ)


def hang(deaf: bool) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    print("hangs", flush=True)
    while True:
        number = signal.sigwait({signal.SIGINT, signal.SIGTERM})
        print("got", signal.Signals(number).name, flush=True)
        if not deaf:
            sys.exit(130)


def write_status(folder: Path) -> None:
    """status.json of a coordinator on the first node, with all nodes active."""
    ranks = ",".join(str(rank) for rank in range(len(STEP.nodes)))
    entry = NodeStatus(NodeRole.ACTIVE, ranks, ranks, "", 0.0, False, 0, 0, True, False, "")
    leader = CoordinatorStatus(STEP.nodes[0], 0, 0, True, True)
    what = Snapshot(
        VERSION, STEP.run_id, "fake", time.time(), 2.0, leader, JobPhase.RUNNING, len(STEP.nodes), None, (entry,),
        STEP.nodes, "0", members=len(STEP.nodes), spares=0, survives=0, budgets=(), ends_in=None, slurm_away=False,
        decision=None, verdict=None,
    )  # fmt: skip
    with suppress(OSError):  # a test's full disk
        atomic.replace(folder / NAME, dump(what))


def main() -> None:
    print("started", flush=True)
    if STEP.infra_rank == 0:
        write_status(Path("runs") / str(STEP.job_id) / STEP.run_id)
    for part in os.environ["FAKE_PLAN"].split():
        node, _, word = part.rpartition(":")
        if node not in ("", STEP.node_name):
            continue
        match word:
            case "verdict" | "own":
                verdict = Verdict(Outcome.SUCCESS, "as planned")
                run, own = Path("runs") / str(STEP.job_id) / STEP.run_id, local_folder(STEP.run_id) / STEP.node_name
                folder = own if word == "own" else run
                verdict_file.write(folder, verdict, STEP.run_id, os.environ["FT_SUPERVISOR_NONCE"])
            case "flood":
                line = "x" * 1000
                for number in range(16 << 10):
                    print(number, line)
                print("flooded", flush=True)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "wait":
                while not Path("go").exists():
                    time.sleep(0.01)
            case "orphan":
                orphan = subprocess.Popen(["sleep", "1000"], start_new_session=True)
                print("orphan", orphan.pid, flush=True)
            case "hang" | "deaf":
                hang(word == "deaf")
            case _:
                sys.exit(int(word))


main()
