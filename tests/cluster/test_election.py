"""Elections: readable cases, then the rules against every state that brokers' failures and returns can make."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.controller.election import election_refusal, initial_state, next_state, preferred_state
from cluster.state import PartitionState
from tidelog.errors import (
    BrokerError,
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    PreferredLeaderNotAvailableError,
)
from tidelog.model import NO_LEADER

EPOCH = 7


def state(leader: int, *isr: int, leader_epoch: int = 4) -> PartitionState:
    return PartitionState(leader, leader_epoch, isr, controller_epoch=6)


def after(leader: int, *isr: int) -> PartitionState:
    return PartitionState(leader, 5, isr, EPOCH)


def shrunk(leader: int, *isr: int) -> PartitionState:
    return PartitionState(leader, 4, isr, EPOCH)


def test_new_partition_is_led_by_its_first_live_replica() -> None:
    assert initial_state((3, 1, 2), {1, 2, 3}, EPOCH) == PartitionState(3, 0, (3, 1, 2), EPOCH)
    assert initial_state((3, 1, 2), {1, 2}, EPOCH) == PartitionState(1, 0, (1, 2), EPOCH)
    assert initial_state((3, 1, 2), {4}, EPOCH) is None


@pytest.mark.parametrize(
    ("before", "live", "expected"),
    [
        pytest.param(state(1, 1, 2, 3), {1, 2, 3}, None, id="nothing happened"),
        pytest.param(state(1, 1, 2, 3), {2, 3}, after(2, 2, 3), id="the leader died: next in replica order"),
        pytest.param(state(1, 3, 1, 2), {2, 3}, after(2, 3, 2), id="replica order, not ISR order"),
        pytest.param(state(1, 1, 3), {2, 3}, after(3, 3), id="only the ISR may lead"),
        pytest.param(state(1, 1, 2, 3), {1, 3}, shrunk(1, 1, 3), id="a follower died: out of the ISR, nothing else"),
        pytest.param(state(1, 1, 2), {1, 2}, None, id="a follower outside the ISR died"),
        pytest.param(state(1, 1), {2, 3}, after(NO_LEADER, 1), id="the last ISR member died: it stays"),
        pytest.param(state(1, 1, 2), {3}, after(NO_LEADER, 1, 2), id="the ISR stays when all its members died at once"),
        pytest.param(state(NO_LEADER, 1, 2), {3}, None, id="still none of them"),
        pytest.param(state(NO_LEADER, 1, 2), {2, 3}, after(2, 2), id="an ISR member is back"),
        pytest.param(state(2, 1, 3), {1, 2, 3}, after(1, 1, 3), id="a leader outside its ISR is none"),
        pytest.param(state(2, 1), {2, 3}, after(NO_LEADER, 1), id="nor where its ISR is dead"),
    ],
)
def test_a_state_follows_its_brokers(before: PartitionState, live: set[int], expected: PartitionState | None) -> None:
    assert next_state(before, (1, 2, 3), live, EPOCH) == expected


@pytest.mark.parametrize(
    ("before", "live", "expected"),
    [
        pytest.param(state(1, 1, 2, 3), {1, 2, 3}, after(2, 2, 3), id="the leader hands over and leaves the ISR"),
        pytest.param(state(2, 1, 2, 3), {1, 2, 3}, shrunk(2, 2, 3), id="a follower only leaves the ISR"),
        pytest.param(state(1, 1), {1, 2, 3}, None, id="the leader stays because no other can take over"),
        pytest.param(state(1, 1, 2), {1, 3}, shrunk(1, 1), id="the other one is dead: it leads on, alone"),
    ],
)
def test_a_leaving_broker_gives_up_what_others_can_take(
    before: PartitionState, live: set[int], expected: PartitionState | None
) -> None:
    assert next_state(before, (1, 2, 3), live, EPOCH, shutting_down={1}, evict_shutting_down=True) == expected


LEFT_ALONE = replace(state(1, 1), eligible=(2, 3))


@pytest.mark.parametrize(
    ("before", "leader", "isr", "removes", "eligible"),
    [
        pytest.param(state(1, 1, 2, 3), 2, (2, 3), False, (), id="there are others"),
        pytest.param(state(1, 1, 2, 3), 2, (2,), False, (1, 3), id="one member remains"),
        pytest.param(LEFT_ALONE, NO_LEADER, (1,), False, (2, 3), id="the single member stays single"),
        pytest.param(LEFT_ALONE, 2, (2,), False, (1, 3), id="a dropped replica has more"),
        pytest.param(state(1, 1, 2, 3, 4), 3, (3, 4), True, (1, 2), id="a reassignment has removed replicas"),
        pytest.param(
            replace(state(3, 3, 4), eligible=(1, 2)), 4, (4,), False, (1, 2, 3), id="and one remaining member is left"
        ),
    ],
)
def test_replicas_dropped_for_a_single_isr_member_become_eligible(
    before: PartitionState, leader: int, isr: tuple[int, ...], removes: bool, eligible: tuple[int, ...]
) -> None:
    assert before.rewritten(leader, isr, EPOCH, removes_replicas=removes).eligible == eligible


def test_a_leaving_broker_that_rejoined_the_isr_is_let_be() -> None:
    assert next_state(state(2, 2, 1), (1, 2, 3), {1, 2}, EPOCH, shutting_down={1}) is None


def test_epoch_bump_begins_a_new_epoch_whether_the_isr_shrinks_or_not() -> None:
    assert next_state(state(1, 1, 2, 3), (1, 2, 3), {1, 2, 3}, EPOCH, renew=True) == after(1, 1, 2, 3)
    assert next_state(state(1, 1, 2, 3), (1, 2, 3), {1, 2}, EPOCH, renew=True) == after(1, 1, 2)
    assert next_state(state(1, 1, 2, 3), (1, 2, 3), {2, 3}, EPOCH, renew=True) == after(2, 2, 3)


def test_the_preferred_leader_comes_back_only_in_sync_and_alive() -> None:
    assert preferred_state(state(2, 2, 1), (1, 2), {1, 2}, EPOCH) == after(1, 2, 1)
    assert preferred_state(state(2, 2), (1, 2), {1, 2}, EPOCH) is None
    assert preferred_state(state(2, 2, 1), (1, 2), {2}, EPOCH) is None
    assert preferred_state(state(1, 2, 1), (1, 2), {1, 2}, EPOCH) is None


@pytest.mark.parametrize(
    ("before", "live", "unclean", "expected"),
    [
        pytest.param(state(2, 2, 1), {1, 2}, False, None, id="the preferred leader can be elected"),
        pytest.param(state(1, 2, 1), {1, 2}, False, ElectionNotNeededError, id="the preferred replica leads"),
        pytest.param(state(2, 2, 1), {2}, False, PreferredLeaderNotAvailableError, id="the preferred replica is dead"),
        pytest.param(
            state(2, 2), {1, 2}, False, PreferredLeaderNotAvailableError, id="the preferred replica is out of sync"
        ),
        pytest.param(state(NO_LEADER, 1), {2}, True, None, id="a replica is alive"),
        pytest.param(state(2, 2), {1, 2}, True, ElectionNotNeededError, id="there is a leader"),
        pytest.param(state(NO_LEADER, 1), {3}, True, EligibleLeadersNotAvailableError, id="no replica is alive"),
    ],
)
def test_an_election_that_would_change_nothing_says_why(
    before: PartitionState, live: set[int], unclean: bool, expected: type[BrokerError] | None
) -> None:
    refusal = election_refusal(before, (1, 2), live, unclean=unclean)
    assert refusal is None if expected is None else isinstance(refusal, expected)


BROKERS = st.integers(1, 5)
REPLICAS = st.lists(BROKERS, min_size=1, max_size=4, unique=True).map(tuple)


@settings(max_examples=300)
@given(st.data())
def test_election_rules_hold_for_any_state(data: st.DataObject) -> None:
    replicas = data.draw(REPLICAS)
    isr = tuple(data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    leader = data.draw(st.sampled_from((NO_LEADER, *isr)))
    live = data.draw(st.sets(BROKERS))
    leaving = data.draw(st.sets(st.sampled_from(sorted(live)))) if live else set()
    evict, renew = data.draw(st.booleans()), data.draw(st.booleans())
    before = PartitionState(leader, data.draw(st.integers(0, 9)), isr, 1)

    result = next_state(before, replicas, live, EPOCH, shutting_down=leaving, evict_shutting_down=evict, renew=renew)
    now = result or before

    assert now.isr, "the ISR is never empty"
    assert len(set(now.isr)) == len(now.isr)
    assert set(now.isr) <= set(replicas)
    if now.leader != NO_LEADER:
        assert now.leader in live and now.leader in now.isr
        assert set(now.isr) <= set(isr)
    else:
        assert set(now.isr) == set(isr)
        assert not any(replica in live and replica not in leaving for replica in isr)
    if result is not None:
        leads_on = result.leader == before.leader and set(isr) > set(result.isr) and not renew
        assert (result.leader_epoch, result.controller_epoch) == (before.leader_epoch + (not leads_on), EPOCH)
        settled = next_state(result, replicas, live, EPOCH, shutting_down=leaving, evict_shutting_down=evict)
        assert settled is None, "one write is enough"
    elif renew:
        assert before.leader == NO_LEADER, "a leader that stays is fenced by a new epoch"
