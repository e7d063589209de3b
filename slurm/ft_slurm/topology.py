"""Finds the switch or block that a node is in, from Slurm's topology address: the domain_id."""

from ft_slurm.errors import NoDomain


def domain(addr: str | None, pattern: str | None, level: str) -> str:
    """Return the component of SLURM_TOPOLOGY_ADDR that SLURM_TOPOLOGY_ADDR_PATTERN calls `level`.

    Examples: `spine.s1.n3` with `switch.switch.node` (topology/tree) and `b1.n3` with `block.node` (topology/block). Of
    several levels with one name the nearest to the node counts: the leaf switch. Several switches of one level come as
    one host list expression, `s[1-2]`, and stay one string. Raises NoDomain, naming the existing levels.
    """
    if not addr or not pattern:
        raise NoDomain(
            "SLURM_TOPOLOGY_ADDR and SLURM_TOPOLOGY_ADDR_PATTERN are not set: the cluster has no topology plugin"
        )
    levels = pattern.split(".")
    # A node name may hold dots, and it comes last.
    parts = _split(addr, len(levels))
    if len(parts) != len(levels):
        raise NoDomain(f"SLURM_TOPOLOGY_ADDR={addr} does not fit SLURM_TOPOLOGY_ADDR_PATTERN={pattern}")
    if level not in levels:
        there = ", ".join(dict.fromkeys(levels))
        raise NoDomain(f"no level {level!r} in SLURM_TOPOLOGY_ADDR_PATTERN={pattern}; levels there are: {there}")
    found = parts[len(levels) - 1 - levels[::-1].index(level)]
    if not found:
        raise NoDomain(f"the node is in no {level}: SLURM_TOPOLOGY_ADDR={addr} leaves it empty")
    return found


def _split(addr: str, count: int) -> list[str]:
    """Split at dots outside brackets, into at most `count` parts."""
    parts, depth = [""], 0
    for char in addr:
        depth += (char == "[") - (char == "]")
        if char == "." and depth == 0 and len(parts) < count:
            parts.append("")
        else:
            parts[-1] += char
    return parts
