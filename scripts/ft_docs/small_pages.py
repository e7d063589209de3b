"""docs/reference/exit-codes.md and store-keys.md: tables of the code with a sentence for each row."""

from __future__ import annotations

import inspect

from ft_docs.text import code, page, table
from ft_supervisor.core.protocol.model import CONFIG_ERROR, EXIT_CODES, NEVER_AGAIN, Cycle, Outcome
from ft_supervisor.store.keys import Keys

EXITS = """\
The code with which every daemon of a job ends, and with it `launch`, `local` and `verdict`. Without any verdict
`launch` ends with srun's own code, or with 75 where that is 0, and `verdict` with 75. Before 25.11 sacct takes 128 off
a code above 128: it shows 130 as `2:0`."""

MEANING = {
    Outcome.SUCCESS: "Every worker of one training world has exited with 0.",
    Outcome.FAILED: "A worker failed, and the restart budget is spent.",
    Outcome.INTERRUPTED: "The time limit, preemption, too few nodes, or no majority of them. Trying again may help.",
    Outcome.CANCELLED: "A person ended it: Ctrl-C or scancel.",
}

STORE = """\
The coordinator in charge hosts a store, torch's TCPStore, and nodes say everything to one another through it. These are
its keys. All of them begin with `ft/RUN_ID/`, so that another run's never fit. Values are JSON of at most 64 KiB, and
they are checked when they arrive; nothing is ever unpickled. A queue has one reader, which waits in it; a key is looked
at with each heartbeat.

The store has no authentication: see [Security](../operators.md#security)."""

KEYS = {
    "hello": ("the coordinator", "Whose store this is: run id, protocol, infra_rank, the configuration's checksum."),
    "policy": ("the coordinator", "Its configuration, so that a node whose own differs can name the first such key."),
    "inbox": ("agents", "A queue: what agents say to the coordinator."),
    "permanent_close": ("the coordinator, once", "The verdict. Nothing follows it; who sees it ends with its code."),
    "pulse": ("the coordinator, each heartbeat", "Round, term, lease: it is in charge, and has a majority."),
    "mail": ("the coordinator", "A queue for one connection of a node's agent: what it is to do."),
    "heartbeat": ("agents, each heartbeat", "The newest round that it has read in the pulse."),
    "barrier_prefix": ("torch", "Where the agents of a cycle enter torch's exit barrier."),
    "barrier_done": ("torch", "All active nodes of the cycle have entered its exit barrier."),
}  # fmt: skip
"""By the names that `Keys` has for them: who writes it, and what it means."""

_ARGUMENTS = {"infra_rank": "INFRA_RANK", "incarnation": "INCARNATION", "connection": "CONNECTION"}


def exit_codes() -> str:
    """The whole page."""
    rows = [(str(EXIT_CODES[outcome]), outcome.value, MEANING[outcome]) for outcome in Outcome]
    rows += [
        (str(CONFIG_ERROR), "", "The configuration or the command line is wrong; one line says where."),
        (str(NEVER_AGAIN), Outcome.FAILED.value, "A rule says: do not run this job again."),
    ]
    rows.sort(key=lambda row: int(row[0]))
    return page("Exit codes", EXITS, table(("code", "verdict", "meaning"), rows))


def store_keys() -> str:
    """The whole page."""
    rows = [(code(path), *KEYS[name]) for name, path in key_paths().items()]
    return page("Store keys", STORE, table(("key", "written by", "what it is"), rows))


def key_paths() -> dict[str, str]:
    """Each key by its name in `Keys`; what it depends on is in capitals."""
    keys = Keys("RUN_ID")
    found = {name: value for name, value in vars(keys).items() if not name.startswith("_")}
    for name, method in inspect.getmembers(keys, inspect.ismethod):
        if not name.startswith("_"):
            found[name] = method(*map(_argument, inspect.signature(method).parameters))
    return {name: path.replace("0.0", "TERM.N") for name, path in found.items()}


def _argument(name: str) -> object:
    return Cycle(0, 0) if name == "cycle" else _ARGUMENTS[name]
