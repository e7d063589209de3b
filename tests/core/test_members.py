"""Tests the coordinator's list of nodes."""

from tests.core.machines import C0, node

from ft_supervisor.core.protocol.messages import Register
from ft_supervisor.core.protocol.model import Cycle, Memory
from ft_supervisor.core.quorum.members import Members


def register(
    infra_rank: int = 0,
    incarnation: int = 1,
    connection: int = 1,
    running: Cycle | None = None,
    domain_id: str = "",
    serial: int = 0,
) -> Register:
    the_node = node(infra_rank, domain_id)
    return Register(the_node, incarnation, connection, 1, 100, running, Memory(0), serial or connection)


def test_a_node_registers_again_with_a_newer_connection_or_incarnation() -> None:
    members = Members()
    for incarnation, connection, serial in ((1, 1, 1), (1, 1, 2), (1, 2, 3), (2, 1, 1)):
        member = members.register(register(incarnation=incarnation, connection=connection, serial=serial), 5.0)
        assert member is not None
        assert (member.incarnation, member.connection, member.heard) == (incarnation, connection, 5.0)
    assert len(members) == 1


def test_an_older_connection_or_incarnation_changes_nothing() -> None:
    members = Members()
    known = members.register(register(incarnation=2, connection=3), 5.0)
    assert members.register(register(incarnation=2, connection=2), 9.0) is None
    assert members.register(register(incarnation=2, connection=3), 9.0) is None  # the same once more
    assert members.register(register(incarnation=1, connection=9), 9.0) is None
    assert members[0] is known
    assert members[0].heard == 5.0


def test_a_node_that_left_for_good_cannot_register_again() -> None:
    members = Members()
    members.register(register(), 0.0)
    members[0].gone = True
    assert members.register(register(incarnation=2), 1.0) is None
    assert not members[0].here


def test_a_lost_node_stays_lost_until_it_registers_and_losses_are_counted() -> None:
    members = Members()
    members.register(register(), 0.0)
    members[0].lost, members[0].times_lost = True, 1
    assert [member.here for member in members] == [False]
    assert members.healthy(3.0, 1.5) == set()
    members.register(register(connection=2), 4.0)
    assert members[0].here
    assert members[0].times_lost == 1


def test_only_a_node_that_runs_nothing_and_was_heard_can_be_chosen() -> None:
    members = Members()
    members.register(register(0), 0.0)
    members.register(register(1, running=C0), 2.0)
    members.register(register(2), 2.0)
    assert members.healthy(2.0, 1.5) == {2}
    assert members.undecided(2.0, 1.5)
    members[0].heard = 2.0
    assert members.healthy(2.0, 1.5) == {0, 2}
    members[1].running = False
    assert members.healthy(2.0, 1.5) == {0, 1, 2}
    assert not members.undecided(2.0, 1.5)


def test_a_node_that_has_not_registered_yet_may_run_workers() -> None:
    members = Members()
    members.expect(node(0), 1.0)
    assert members.anybody_runs()
    assert members.running() == {0}
    assert members.present(1.0, 1.5) == set()
    assert not members[0].registered
    members.register(register(0), 2.0)
    assert not members.anybody_runs()
    assert members.present(2.0, 1.5) == members.healthy(2.0, 1.5) == {0}


def test_a_promise_from_before_it_was_asked_for_proves_nothing() -> None:
    members = Members()
    members.register(register(), 0.0)
    members[0].asked = 4
    members.register(register(serial=2), 0.0)
    assert members[0].asked == 4
    members.register(register(connection=2, serial=3), 0.0)
    assert members[0].asked is None


def test_time_in_which_the_coordinator_stood_still_is_no_silence_of_nodes() -> None:
    members = Members()
    members.register(register(0), 1.0)
    members.register(register(1), 5.0)
    members.forgive(3.0, 6.0)
    assert [member.heard for member in members] == [4.0, 6.0]  # and no node was heard in the future


def test_domains() -> None:
    members = Members()
    members.register(register(0, domain_id="x"), 0.0)
    members.register(register(3), 0.0)
    assert members.domains() == {0: "x", 3: ""}
