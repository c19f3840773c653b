"""A reassignment has let its origin go, and the heirs fail before they have shown that they outlived that."""

from __future__ import annotations

import pytest

from cluster.state import ReplicaAssignment
from tests.cluster.controller_stage import TP, Cluster, broker, short
from tidelog.model import NO_LEADER

UNCLEAN = {"unclean.leader.election.enable": "true"}


def shed(origin: tuple[int, ...], heirs: tuple[int, ...], **configs: str) -> Cluster:
    """It stands that only the heirs are in sync, who have not been heard since."""
    cluster = Cluster(*origin, *heirs)
    cluster.create("t", origin, **configs)
    cluster.settle()
    cluster.reassign(TP, *heirs)
    cluster.settle()
    cluster.leader_tells_isr(TP, *origin, *heirs)
    cluster.silent.update(heirs)
    cluster.settle()
    assert (cluster.state().isr, cluster.stops) == (heirs, [])
    return cluster


def back_short(cluster: Cluster, *broker_ids: int) -> None:
    """Their machines went down, and are up again."""
    cluster.die(*broker_ids)
    cluster.settle()
    cluster.silent.clear()
    cluster.come(*(short(broker_id, 50 + broker_id) for broker_id in broker_ids))
    cluster.settle()


def catch_up(cluster: Cluster, *isr: int) -> None:
    cluster.leader_tells_isr(TP, *isr)
    cluster.settle()


# --- an heir comes back short ----------------------------------------------------------------------------


def test_who_goes_leads_again_where_the_only_heir_has_lost_something() -> None:
    cluster = shed((1,), (4,))
    back_short(cluster, 4)
    cluster.news()
    cluster.tell_ends({1: 7, 4: 5})
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (1, (1,))
    assert cluster.news() == ["tell 1: t-0 leader=1 isr=1", "tell 4: t-0 leader=1 isr=1"]
    assert cluster.stops == [] and cluster.absolved == [4]
    catch_up(cluster, 1, 4)
    assert (cluster.state().isr, cluster.stops) == ((4,), [(1, [TP])])
    cluster.answer_stops()
    cluster.settle()
    assert cluster.assigned(TP) == ReplicaAssignment((4,)) and cluster.controller.reassignments == {}


def test_an_heir_that_has_everything_leads_again_and_who_goes_has_its_log_until_it_has_outlived_the_next_shedding() -> (
    None
):
    cluster = shed((1,), (4,))
    back_short(cluster, 4)
    cluster.silent.add(4)
    cluster.tell_ends({1: 7, 4: 7})
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (4, (4,))
    assert cluster.holders_told() == {1, 4}
    cluster.hear(4)
    cluster.silent.add(4)
    cluster.settle()
    assert cluster.stops == [], "it was well when this was written, and has not been heard since"
    cluster.hear(4)
    assert cluster.stops == [(1, [TP])]


def test_of_several_heirs_and_those_who_go_the_one_who_has_most_leads() -> None:
    cluster = shed((1, 2), (3, 4))
    back_short(cluster, 3, 4)
    cluster.tell_ends({1: 7, 2: 8, 3: 5, 4: 6})
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr, cluster.stops) == (2, (2,), [])
    catch_up(cluster, 2, 3, 4)
    assert cluster.state().isr == (3, 4)


def test_where_one_heir_knows_of_a_loss_and_another_does_not_who_goes_and_has_most_leads() -> None:
    """What they lack may be the same: only one had noted how far it was committed."""
    cluster = shed((1, 2), (3, 4))
    back_short(cluster, 3, 4)
    cluster.tell_end(3, 5, lacks=True)
    cluster.tell_ends({1: 10, 2: 10, 4: 6})
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr, cluster.stops) == (1, (1,), [])


def test_one_that_is_registered_and_silent_is_not_waited_for_for_ever() -> None:
    cluster = shed((1,), (4,))
    back_short(cluster, 4)
    cluster.tell_end(4, 5)
    for now_ms in (0, 299_999):
        cluster.play(cluster.controller.time_passed(now_ms))
    assert cluster.waiting == []
    cluster.play(cluster.controller.time_passed(300_000))
    assert [write.state.leader for write in cluster.waiting] == [4]


def test_where_the_only_heir_knows_of_a_loss_nobody_leads_until_somebody_gives_up_what_it_alone_may_have_had() -> None:
    cluster = shed((1,), (4,))
    back_short(cluster, 4)
    cluster.tell_end(1, 7)
    cluster.tell_end(4, 5, lacks=True)
    cluster.settle()
    assert (cluster.state().leader, cluster.stops) == (NO_LEADER, [])
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (1, (1,))


def test_it_is_waited_for_who_goes_and_is_away_but_not_for_ever() -> None:
    cluster = shed((1,), (4,))
    cluster.die(1)
    back_short(cluster, 4)
    cluster.play(cluster.controller.time_passed(0))
    cluster.play(cluster.controller.time_passed(299_999))
    assert (cluster.state().leader, cluster.asked) == (NO_LEADER, [])
    cluster.play(cluster.controller.time_passed(300_000))
    cluster.tell_ends({4: 5})
    cluster.settle()
    assert cluster.state().leader == 4


def test_who_goes_and_is_back_is_asked_and_leads() -> None:
    cluster = shed((1,), (4,))
    cluster.die(1)
    back_short(cluster, 4)
    cluster.come(broker(1, 60))
    cluster.settle()
    cluster.tell_ends({1: 7, 4: 5})
    cluster.settle()
    assert cluster.state().leader == 1


def test_nobody_leads_as_long_as_the_only_heir_is_away() -> None:
    cluster = shed((1,), (4,))
    back_short(cluster, 4)
    cluster.die(4)
    cluster.settle()
    cluster.asked.clear()
    cluster.play(cluster.controller.time_passed(0))
    cluster.play(cluster.controller.time_passed(300_000))
    cluster.settle()
    assert (cluster.state().leader, cluster.asked) == (NO_LEADER, []), "it may be whole when it is back"


def test_the_next_controller_asks_who_goes_too() -> None:
    cluster = shed((1, 2), (3, 4))
    cluster.die(3, 4)
    cluster.settle()
    cluster.begin_term(2)
    cluster.settle()
    back_short(cluster, 3, 4)
    cluster.tell_ends({1: 7, 2: 8, 3: 5, 4: 6})
    cluster.settle()
    assert (cluster.state().leader, cluster.stops) == (2, [])


def test_of_a_move_that_is_taken_back_who_stays_now_leads_where_the_only_one_in_sync_has_lost_something() -> None:
    cluster = shed((1,), (4,))
    back_short(cluster, 4)
    cluster.reassign(TP)
    cluster.tell_ends({1: 7, 4: 5})
    cluster.settle()
    cluster.answer_stops()
    cluster.settle()
    assert (cluster.state().leader, cluster.assigned(TP)) == (1, ReplicaAssignment((1,)))


def test_one_that_goes_down_once_more_before_its_leadership_is_written_is_in_doubt_again() -> None:
    cluster = shed((1,), (4,))
    back_short(cluster, 4)
    cluster.tell_ends({1: 7, 4: 7})
    assert [write.state.leader for write in cluster.waiting] == [4]
    cluster.live.pop(4)
    cluster.come(short(4, 70))
    cluster.settle()
    assert cluster.state().leader == NO_LEADER
    cluster.tell_ends({1: 7, 4: 6})
    cluster.settle()
    assert cluster.state().leader == 1


def test_behind_a_move_that_is_safe_those_who_stay_are_judged_alone() -> None:
    cluster = shed((1,), (4,))
    cluster.hear(4)
    assert cluster.stops == [(1, [TP])]
    back_short(cluster, 4)
    assert (cluster.state().leader, cluster.asked) == (4, [])


# --- whose sign of life counts -----------------------------------------------------------------------------


def joined_behind_the_shedding() -> Cluster:
    """Broker 3 stays, was away when 1 and 2 were shed, and caught up with 4, which has not been heard since."""
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.die(3)
    cluster.settle()
    cluster.reassign(TP, 3, 4)
    cluster.settle()
    cluster.leader_tells_isr(TP, 1, 2, 4)
    cluster.silent.add(4)
    cluster.settle()
    cluster.come(broker(3, 60))
    cluster.silent.add(3)
    catch_up(cluster, 4, 3)
    return cluster


def test_who_answered_before_it_was_in_sync_has_not_shown_that_what_it_has_outlives_anything() -> None:
    cluster = joined_behind_the_shedding()
    assert (cluster.state().isr, cluster.stops) == ((4, 3), [])
    cluster.hear(4)
    assert cluster.stops == [(1, [TP]), (2, [TP])]


def test_where_all_heirs_that_were_asked_are_gone_those_of_now_are_asked() -> None:
    cluster = joined_behind_the_shedding()
    cluster.hear(3)
    cluster.silent.add(3)
    cluster.die(4)
    cluster.settle()
    cluster.hear(3)
    cluster.settle()
    assert (cluster.state().isr, cluster.stops) == ((3,), [(1, [TP]), (2, [TP])])


def moved_from_a_silent_leader() -> Cluster:
    """All that is missing for it to go is an answer of its own."""
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.reassign(TP, 2, 3, 4)
    cluster.settle()
    cluster.silent.add(1)
    catch_up(cluster, 1, 2, 3, 4)
    assert (cluster.state().leader, cluster.state().isr) == (1, (1, 2, 3, 4))
    return cluster


def test_a_leader_that_does_not_answer_is_not_shed() -> None:
    """It would not hear of it, and go on to tell clients what was committed."""
    cluster = moved_from_a_silent_leader()
    cluster.hear(1)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2, 3, 4))


def test_what_a_leader_answered_when_it_was_to_go_is_no_sign_of_life_when_it_is_to_go_again() -> None:
    cluster = moved_from_a_silent_leader()
    catch_up(cluster, 1, 2, 3)  # who comes falls behind: nobody is to go
    cluster.hear(1)
    cluster.silent.add(1)
    catch_up(cluster, 1, 2, 3, 4)
    assert cluster.state().leader == 1
    cluster.hear(1)
    cluster.settle()
    assert cluster.state().isr == (2, 3, 4)


def test_who_is_to_be_left_alone_with_the_records_lives_still_when_the_leader_has_answered() -> None:
    """It may have answered long after them."""
    cluster = moved_from_a_silent_leader()
    cluster.silent = {2, 3, 4}
    cluster.hear(1)
    cluster.settle()
    assert cluster.state().leader == 1
    cluster.hear(3)
    cluster.settle()
    assert cluster.state().isr == (2, 3, 4)


def test_heirs_are_asked_again_if_the_leader_gets_a_new_epoch_meanwhile() -> None:
    cluster = moved_from_a_silent_leader()
    cluster.silent = {2, 3, 4}
    cluster.hear(1)  # the heirs are asked
    cluster.silent.add(1)
    cluster.play(cluster.controller.leadership_ended(1, {TP: cluster.state().leader_epoch}))
    cluster.settle()
    cluster.hear(2, 3, 4)
    cluster.settle()
    assert cluster.state().leader == 1, "it has not been heard in this epoch"
    cluster.silent = {2, 3, 4}
    cluster.hear(1)
    cluster.settle()
    assert cluster.state().leader == 1, "the heirs answered before the leader did"
    cluster.hear(3)
    cluster.settle()
    assert cluster.state().isr == (2, 3, 4)


# --- unclean elections -------------------------------------------------------------------------------------


def test_an_unclean_election_takes_who_goes_before_one_that_stays_and_has_less() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("t", (1, 2, 3), **UNCLEAN)
    cluster.settle()
    cluster.die(3)
    cluster.settle()
    cluster.reassign(TP, 3, 4)
    cluster.settle()
    cluster.leader_tells_isr(TP, 1, 2, 4)
    cluster.silent.add(4)
    cluster.settle()
    cluster.come(broker(3, 60))
    cluster.settle()
    cluster.die(4)
    cluster.settle()
    cluster.tell_ends({1: 7, 2: 7, 3: 5})
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr, cluster.stops) == (1, (1,), [])
    cluster.come(broker(4, 70))
    catch_up(cluster, 1, 2, 3, 4)
    assert cluster.state().isr == (3, 4)


@pytest.mark.parametrize("cancelled", [False, True])
def test_under_the_next_controller_an_unclean_election_takes_nobody_who_has_just_deleted_its_log(
    cancelled: bool,
) -> None:
    cluster = shed((1, 2), (3, 4), **UNCLEAN)
    cluster.hear(3, 4)
    assert cluster.stops == [(1, [TP]), (2, [TP])]
    if cancelled:
        cluster.reassign(TP)
        cluster.settle()
    cluster.begin_term(2)
    cluster.leader_tells_isr(TP, 3)
    cluster.settle()
    cluster.die(3)
    cluster.settle()
    cluster.tell_ends({1: 0, 2: 0, 4: 5})
    cluster.settle()
    assert cluster.state().leader == 4


def test_somebody_may_give_up_what_the_heirs_alone_have_and_who_goes_leads() -> None:
    cluster = shed((1, 2), (3,))
    cluster.die(3)
    cluster.settle()
    assert cluster.controller.election_refusal(TP, unclean=True) is None
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    cluster.tell_end(1, 7)
    assert cluster.waiting == [] and cluster.controller.election_in_progress(TP), "it is waited for the other one"
    cluster.tell_end(2, 8)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))
    assert not cluster.controller.election_in_progress(TP)
