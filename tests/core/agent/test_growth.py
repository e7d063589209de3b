"""Tests when a process that goes on from cycle to cycle has grown too much."""

import pytest

from ft_supervisor.core.agent.growth import Growth, Usage


def after(*used: tuple[int, int, int], most: int = 100 << 20) -> list[str]:
    """Return what is found after each of these cycles."""
    growth = Growth(most)
    return [growth.after_cycle(Usage(*each)) for each in used]


def test_the_first_two_cycles_may_grow_by_any_amount() -> None:
    assert after((300, 0, 5), (90_000, 20_000, 80), (90_000, 20_000, 80)) == ["", "", ""]


@pytest.mark.parametrize(
    ("third", "found"),
    [
        ((400, 50, 5), ""),
        ((401, 50, 5), "+101 MiB, +0 MiB on the GPU, +0 threads in 1 cycle"),
        ((300, 151, 9), "+0 MiB, +101 MiB on the GPU, +4 threads in 1 cycle"),
        ((380, 80, 4), "+80 MiB, +30 MiB on the GPU, -1 threads in 1 cycle"),
        ((380, 40, 400), ""),
        ((10, 0, 1), ""),
    ],
)
def test_from_then_on_memory_counts(third: tuple[int, int, int], found: str) -> None:
    assert after((1, 0, 1), (300, 50, 5), third) == ["", "", found]


def test_it_counts_from_the_second_cycle() -> None:
    each = [(100 * cycle, 0, 3 * cycle) for cycle in range(1, 5)]
    assert after(*each) == ["", "", "", "+200 MiB, +0 MiB on the GPU, +6 threads in 2 cycles"]
