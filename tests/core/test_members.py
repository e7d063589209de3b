"""The coordinator's list of nodes."""

from tests.core.machines import C0, node

from ft_supervisor.core.members import Members
from ft_supervisor.core.messages import Register
from ft_supervisor.core.model import Cycle, Memory


def register(
    infra_rank: int = 0, incarnation: int = 1, connection: int = 1, running: Cycle | None = None, domain_id: str = ""
) -> Register:
    return Register(0, node(infra_rank, domain_id), incarnation, connection, 100, running, Memory())


def test_a_node_registers_again_with_a_newer_connection_or_incarnation() -> None:
    members = Members()
    for incarnation, connection in ((1, 1), (1, 1), (1, 2), (2, 1)):
        member = members.register(register(incarnation=incarnation, connection=connection), 5.0)
        assert member is not None
        assert (member.incarnation, member.connection, member.heard) == (incarnation, connection, 5.0)
    assert len(members) == 1


def test_an_older_connection_or_incarnation_changes_nothing() -> None:
    members = Members()
    known = members.register(register(incarnation=2, connection=3), 5.0)
    assert members.register(register(incarnation=2, connection=2), 9.0) is None
    assert members.register(register(incarnation=1, connection=9), 9.0) is None
    assert members[0] is known
    assert members[0].heard == 5.0


def test_who_left_for_good_is_not_taken_on_again() -> None:
    members = Members()
    members.register(register(), 0.0)
    members[0].gone = True
    assert members.register(register(incarnation=2), 1.0) is None
    assert not members[0].here


def test_a_lost_node_stays_lost_until_it_registers_and_losses_are_counted() -> None:
    members = Members()
    members.register(register(), 0.0)
    members[0].lost, members[0].times_lost = True, 1
    members.heard(0, 3.0)
    assert [member.here for member in members] == [False]
    assert members.healthy(3.0, 1.5) == set()
    members.register(register(connection=2), 4.0)
    assert members[0].here
    assert members[0].times_lost == 1


def test_only_who_runs_nothing_and_was_heard_can_be_chosen() -> None:
    members = Members()
    members.register(register(0), 0.0)
    members.register(register(1, running=C0), 2.0)
    members.register(register(2), 2.0)
    assert members.healthy(2.0, 1.5) == {2}
    assert members.undecided(2.0, 1.5)
    members.heard(0, 2.0)
    assert members.healthy(2.0, 1.5) == {0, 2}
    members[1].running = False
    assert members.healthy(2.0, 1.5) == {0, 1, 2}
    assert not members.undecided(2.0, 1.5)


def test_a_sign_of_life_of_a_stranger_is_nothing() -> None:
    members = Members()
    members.heard(7, 1.0)
    assert members.get(7) is None
    assert len(members) == 0


def test_domains() -> None:
    members = Members()
    members.register(register(0, domain_id="x"), 0.0)
    members.register(register(3), 0.0)
    assert members.domains() == {0: "x", 3: ""}
