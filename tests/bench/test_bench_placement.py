"""The bench of placement: that it measures groups that were found."""

from ft_bench import placement
from ft_supervisor.core.protocol.settings import Placement


def test_every_row_is_measured() -> None:
    rows = placement.measure(quick=True)
    assert len(rows) == len({row.what for row in rows}) == len(placement.SEGMENTS) * 2 * 3
    assert all(len(row.samples) == 2 and row.met is not None for row in rows)
    for segment in placement.SEGMENTS:
        for pools in (Placement().pools, placement._DEMANDING):
            policy = Placement(segment=segment, pools=pools)
            assert len(placement._place(placement._KNOWN, (), policy).group or ()) == placement.ACTIVE
