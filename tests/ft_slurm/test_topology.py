"""Tests domains on the values of Slurm's topology plugins."""

import pytest

from ft_slurm.errors import NoDomain
from ft_slurm.topology import domain


@pytest.mark.parametrize(
    ("addr", "pattern", "level", "found"),
    [
        ("spine.s1.n3", "switch.switch.node", "switch", "s1"),
        ("b1.n3", "block.node", "block", "b1"),
        ("s[1-2].leaf3.n3", "switch.switch.node", "switch", "leaf3"),
        ("spine.s[1.2].n3", "switch.switch.node", "switch", "s[1.2]"),
        ("b1.n3.example.org", "block.node", "block", "b1"),
        ("b1.n3.example.org", "block.node", "node", "n3.example.org"),
        (".s1.n3", "switch.switch.node", "switch", "s1"),
    ],
)
def test_domain(addr: str, pattern: str, level: str, found: str) -> None:
    assert domain(addr, pattern, level) == found


@pytest.mark.parametrize(
    ("addr", "pattern", "level", "shown"),
    [
        (None, None, "switch", "no topology plugin"),
        ("n3", "node", "switch", "no level 'switch' in SLURM_TOPOLOGY_ADDR_PATTERN=node; levels there are: node"),
        ("spine.s1.n3", "switch.switch.node", "block", "levels there are: switch, node"),
        ("s1.n3", "switch.switch.node", "switch", "s1.n3 does not fit"),
        ("spine..n3", "switch.switch.node", "switch", "spine..n3 leaves it empty"),
    ],
)
def test_no_domain(addr: str | None, pattern: str | None, level: str, shown: str) -> None:
    with pytest.raises(NoDomain) as caught:
        domain(addr, pattern, level)
    assert shown in str(caught.value)
