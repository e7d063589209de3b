"""Any value of the core's types, for hypothesis: lists of ranks must be such, and a log's fields may be anything."""

from hypothesis import strategies as st

from ft_supervisor.core.actions import Log
from ft_supervisor.core.ledger import Ledger
from ft_supervisor.core.messages import Run, Stop
from ft_supervisor.core.model import Cycle, Outcome, Roster
from ft_supervisor.core.orders import Closed
from ft_supervisor.core.ranks import fold

RANKS = st.lists(st.integers(0, 99_999), max_size=20).map(fold)
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(Outcome)
ANYTHING |= st.builds(Cycle) | st.tuples(st.text(), st.integers())


def register() -> None:
    """Teach hypothesis what its own look at the annotations cannot know."""
    st.register_type_strategy(Roster, st.builds(Roster, members=RANKS, former=RANKS))
    st.register_type_strategy(Ledger, st.builds(Ledger, excluded=RANKS))
    st.register_type_strategy(Stop, st.builds(Stop, group=RANKS))
    st.register_type_strategy(Run, st.builds(Run, group=RANKS))
    st.register_type_strategy(Closed, st.builds(Closed, lost=RANKS, summary=...))
    fields = st.lists(st.tuples(st.text(), ANYTHING), max_size=5).map(tuple)
    st.register_type_strategy(Log, st.builds(Log, fields=fields))
