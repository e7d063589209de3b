"""Makes docs/reference/exit-codes.md and store-keys.md: tables from the code with a sentence for each row."""

from __future__ import annotations

import inspect

from ft_docs.text import code, page, table
from ft_supervisor.core.protocol.model import CONFIG_ERROR, EXIT_CODES, NEVER_AGAIN, Cycle, Outcome
from ft_supervisor.store.keys import Keys

EXITS = """\
Every daemon of a job ends with this code, and so do `launch`, `local` and `verdict`. Without any verdict
`launch` ends with srun's own code, or with 75 where that is 0, and `verdict` with 75. Before 25.11 sacct takes 128 off
a code above 128: it shows 130 as `2:0`."""

MEANING = {
    Outcome.SUCCESS: "Every worker of one training world has exited with 0.",
    Outcome.FAILED: "A worker failed, and the restart budget is spent.",
    Outcome.INTERRUPTED: "The time limit, preemption, too few nodes, or no majority of them. Trying again may help.",
    Outcome.CANCELLED: "A person ended it: Ctrl-C or scancel.",
}

STORE = """\
The coordinator in charge hosts a store, torch's TCPStore, and all messages between nodes go through it. These are its
keys. All of them begin with `ft/RUN_ID/`, so that another run's never fit. Values are JSON of at most 64 KiB, and they
are checked when they arrive; nothing is unpickled. A queue has one reader, which waits in it; a key is read with each
heartbeat.

The store has no authentication: see [Security](../operators.md#security)."""

KEYS = {
    "hello": ("the coordinator", "The store's owner: run id, protocol, infra_rank, the configuration's checksum."),
    "policy": ("the coordinator", "Its configuration, so that a node whose own differs can name the first such key."),
    "inbox": ("agents; daemons", "A queue: messages to the coordinator. A daemon says there that its agent is gone."),
    "permanent_close": ("the coordinator, once", "The verdict. Nothing follows it; a node that sees it ends by it."),
    "pulse": ("the coordinator, each heartbeat", "Round, term, lease: it is in charge, and has a majority."),
    "mail": ("the coordinator", "A queue for one connection of a node's agent: the coordinator's messages to it."),
    "heartbeat": ("agents, each heartbeat", "The newest round that the agent has read in the pulse."),
    "barrier_prefix": ("torch", "The prefix below which the agents of a cycle enter torch's exit barrier."),
    "barrier_done": ("torch", "All active nodes of the cycle have entered its exit barrier."),
}  # fmt: skip
"""For each name in `Keys`: the writer of the key, and its meaning."""

_ARGUMENTS = {"infra_rank": "INFRA_RANK", "incarnation": "INCARNATION", "connection": "CONNECTION"}


def exit_codes() -> str:
    """Return the whole page of exit codes."""
    rows = [(str(EXIT_CODES[outcome]), outcome.value, MEANING[outcome]) for outcome in Outcome]
    rows += [
        (str(CONFIG_ERROR), "", "The configuration or the command line is wrong; one line says where."),
        (str(NEVER_AGAIN), Outcome.FAILED.value, "A rule says: do not run this job again."),
    ]
    rows.sort(key=lambda row: int(row[0]))
    return page("Exit codes", EXITS, table(("code", "verdict", "meaning"), rows))


def store_keys() -> str:
    """Return the whole page of store keys."""
    rows = [(code(path), *KEYS[name]) for name, path in key_paths().items()]
    return page("Store keys", STORE, table(("key", "written by", "meaning"), rows))


def key_paths() -> dict[str, str]:
    """Return each key by its name in `Keys`; the parts that it depends on are in capitals."""
    keys = Keys("RUN_ID")
    found = {name: value for name, value in vars(keys).items() if not name.startswith("_")}
    for name, method in inspect.getmembers(keys, inspect.ismethod):
        if not name.startswith("_"):
            found[name] = method(*map(_argument, inspect.signature(method).parameters))
    return {name: path.replace("0.0", "TERM.N") for name, path in found.items()}


def _argument(name: str) -> object:
    return Cycle(0, 0) if name == "cycle" else _ARGUMENTS[name]
