"""Says where a key belongs that a job's file does not have: torchrun's words, and keys on a wrong level."""

from collections.abc import Collection, Mapping

from ft_supervisor.config.yamltree import Value

_OURS = "remove it: ft-supervisor sets it for each worker"
_RENDEZVOUS = "remove it: ft-supervisor does the rendezvous, and needs no setting for it"
_TORCHRUN: Mapping[str, tuple[str, str]] = {
    "nnodes": ("nodes.active", "write nodes: {{active: {value}}}, or {{active: {{min: 2, max: 4}}}} for a range"),
    "nproc_per_node": ("workers.per_node", "write workers: {{per_node: {value}}}"),
    "max_restarts": (
        "policy.failures",
        "write policy: {{failures: [{{match: any, action: restart, budget: {{max: {value}}}}}]}}",
    ),
    "log_dir": ("run_dir", "write run_dir: {value}"),
    "no_python": ("workers.command", "write the whole command: workers: {{command: [./program]}}"),
    "standalone": ("", "remove it, and run `ft-supervisor local --config job.yaml -N 1`"),
    "monitor_interval": ("", "remove it: the end of a worker is noticed at once"),
    "node_rank": ("", _OURS),
    "master_addr": ("", _OURS),
    "master_port": ("", _OURS),
    "rdzv_backend": ("", _RENDEZVOUS),
    "rdzv_conf": ("", _RENDEZVOUS),
    "rdzv_endpoint": ("", _RENDEZVOUS),
    "rdzv_id": ("", _RENDEZVOUS),
}
"""Each option of torchrun with the key that takes its place here, "" for none, and what to write."""
_VALUE = 40
"""Characters of a value that is repeated in what to write, at most."""


def place(value: Value, name: str, prefix: str, known: Collection[str]) -> tuple[str, str, str] | None:
    """Returns the key that was meant ("" for none), what is wrong and what would be right; None for any other name.

    `known`: the dotted keys of the file in which `prefix` + `name` is written.
    """
    word = name.replace("-", "_").lower()
    if word in _TORCHRUN:
        meant, right = _TORCHRUN[word]
        shown = value.text if value.text and ":" not in value.text and len(value.text) <= _VALUE else "N"
        return meant, "is an option of torchrun's", right.format(value=shown)
    if prefix == "policy." and any(key == name or key.startswith(f"{name}.") for key in known):
        return name, "unknown key", f"{name} belongs at the top level, not below policy"
    if name == "spares" and isinstance(value.data, int):
        return "policy.spares", "unknown key", f"spares are the nodes beyond active: submit --spares {value.text}"
    return None
