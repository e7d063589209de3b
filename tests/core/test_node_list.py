"""Lists of nodes in Slurm's form, as ft_slurm reads them back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_slurm.nodelist import expand
from ft_supervisor.core.node_list import fold


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["n2"], "n2"),
        (["n0", "n1", "n2", "n7"], "n[0-2,7]"),
        (["gpu-a08", "gpu-a09", "gpu-a10"], "gpu-a[08-10]"),
        (["n9", "n10", "login"], "n[9-10],login"),
        (["r1n01-ib", "r1n02-ib", "r2n01-ib"], "r1n[01-02]-ib,r2n01-ib"),
        ([], ""),
    ],
)
def test_names_are_folded(names: list[str], folded: str) -> None:
    assert fold(names) == folded


def test_a_long_list_ends_with_a_count() -> None:
    names = [f"n{number}" for number in range(0, 4000, 2)]
    text = fold(names)
    listed, _, more = text.partition(" and ")
    assert len(text) < 200
    assert list(expand(listed)) == names[: len(names) - int(more.removesuffix(" more"))]


_NAMES = st.from_regex(r"[a-z]{1,3}-?[0-9]{0,3}[a-z]?", fullmatch=True)


@given(st.lists(_NAMES, min_size=1, max_size=40, unique=True))
def test_slurm_reads_the_same_nodes(names: list[str]) -> None:
    assert sorted(expand(fold(names, 10_000))) == sorted(names)
