from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.executed_lines import executed_lines
from tidelog.groups.assignment.assignors import (
    ASSIGNORS,
    Assignments,
    Candidate,
    assign_cooperatively,
    assign_ranges,
    assign_round_robin,
    assign_sticky,
)
from tidelog.groups.assignment.consumer_protocol import Subscription
from tidelog.groups.assignment.sticky_assignment import Balance
from tidelog.groups.assignment.sticky_user_data import MemberData, encode_member_data
from tidelog.model import TopicPartition


def member(name: str, *topics: str, owned: str = "", generation: int = -1, instance: str | None = None) -> Candidate:
    return Candidate(name, instance, Subscription(topics or ("t",), partitions(owned), generation))


def eager(name: str, *topics: str, had: str = "", generation: int = -1) -> Candidate:
    memory = encode_member_data(MemberData(partitions(had), generation))
    return Candidate(name, None, Subscription(topics or ("t",), user_data=memory))


def partitions(names: str) -> tuple[TopicPartition, ...]:
    """ "t0 u3" """
    return tuple(TopicPartition(name[0], int(name[1:])) for name in names.split())


def shown(given: Assignments) -> dict[str, str]:
    return {who: " ".join(f"{tp.topic}{tp.partition}" for tp in tps) for who, tps in given.items()}


def test_range_assigns_each_member_a_run_of_each_topic() -> None:
    members = [member("b", "t", "u"), member("a", "t", "u")]
    assert shown(assign_ranges(members, {"t": 3, "u": 3})) == {"a": "t0 t1 u0 u1", "b": "t2 u2"}
    assert shown(assign_ranges(members, {"t": 1})) == {"a": "t0", "b": ""}


def test_range_uses_only_subscribers_and_existing_topics() -> None:
    members = [member("a", "t"), member("b", "t", "u", "gone")]
    assert shown(assign_ranges(members, {"t": 2, "u": 2})) == {"a": "t0", "b": "t1 u0 u1"}


def test_round_robin_assigns_partitions_in_turn() -> None:
    members = [member("b", "t", "u"), member("a", "t", "u")]
    assert shown(assign_round_robin(members, {"t": 3, "u": 3})) == {"a": "t0 t2 u1", "b": "t1 u0 u2"}
    unlike = [member("a", "t"), member("b", "t", "u"), member("c", "u")]
    assert shown(assign_round_robin(unlike, {"t": 1, "u": 2})) == {"a": "t0", "b": "u0", "c": "u1"}


def test_restarted_static_member_keeps_its_position() -> None:
    before = assign_ranges([member("z9", instance="one"), member("a", instance="two")], {"t": 2})
    after = assign_ranges([member("b", instance="one"), member("a", instance="two")], {"t": 2})
    assert shown(before) == {"z9": "t0", "a": "t1"}
    assert shown(after) == {"b": "t0", "a": "t1"}


@pytest.mark.parametrize("make", [eager, member], ids=["eager", "cooperative"])
def test_sticky_takes_only_surplus_partitions(make: object) -> None:
    if make is eager:
        members = [eager("a", had="t0 t1 t2", generation=4), eager("b", had="t3 t4 t5", generation=4), eager("c")]
    else:
        members = [
            member("a", owned="t0 t1 t2", generation=4),
            member("b", owned="t3 t4 t5", generation=4),
            member("c"),
        ]
    assert shown(assign_sticky(members, {"t": 6})) == {"a": "t0 t1", "b": "t3 t4", "c": "t2 t5"}


def test_sticky_gives_freed_partitions_to_the_least_loaded() -> None:
    members = [eager("a", had="t0 t3", generation=1), eager("b", had="t1", generation=1)]
    assert shown(assign_sticky(members, {"t": 4})) == {"a": "t0 t3", "b": "t1 t2"}


def test_latest_generations_claim_wins_and_equal_claims_cancel() -> None:
    members = [eager("a", had="t0 t1", generation=2), eager("b", had="t0 t2", generation=3)]
    assert shown(assign_sticky(members, {"t": 4})) == {"a": "t1 t3", "b": "t0 t2"}
    both = [eager("b", had="t0", generation=3), eager("a", had="t0", generation=3)]
    assert shown(assign_sticky(both, {"t": 2})) == {"a": "t0", "b": "t1"}, "as if no member had owned a partition"


def test_sticky_ignores_unsubscribed_deleted_and_invalid_claims() -> None:
    members = [
        eager("a", "t", had="u0 u1 t9", generation=1),
        Candidate("b", None, Subscription(("t", "u"), user_data=b"\x00\x00\x00\x05junk")),
    ]
    assert shown(assign_sticky(members, {"t": 1, "u": 2})) == {"a": "t0", "b": "u0 u1"}


def test_cooperative_revokes_first_and_assigns_one_generation_later() -> None:
    topics = {"t": 6}
    first = [member("a", owned="t0 t1 t2 t3 t4 t5", generation=1), member("b")]
    taken = assign_cooperatively(first, topics)
    assert shown(taken) == {"a": "t0 t1 t2", "b": ""}
    second = [Candidate("a", None, Subscription(("t",), tuple(taken["a"]), 2)), member("b", generation=2)]
    assert shown(assign_cooperatively(second, topics)) == {"a": "t0 t1 t2", "b": "t3 t4 t5"}


def test_unowned_partitions_move_before_owned_ones() -> None:
    wants = {"m5": ("u", "t"), "m2": ("t",), "m7": ("t", "u"), "m8": ("u",), "m4": ("t",), "m0": ("u", "t")}
    had: Assignments = {"m2": [*partitions("u1")], "m7": [*partitions("u0")], "m0": [*partitions("t0 t1 t2 t3 t4")]}

    def group(holds: Assignments) -> list[Candidate]:
        return [Candidate(who, None, Subscription(wants[who], tuple(holds.get(who, ())), 1)) for who in wants]

    first = assign_cooperatively(group(had), {"t": 5, "u": 2})
    second = assign_cooperatively(group(first), {"t": 5, "u": 2})
    assert all(set(first[who]) <= set(second[who]) for who in wants), "else it would be taken away and given again"


def test_partition_owned_by_two_stays_with_one_of_them() -> None:
    both = [member("a", owned="t0 t1", generation=1), member("b", owned="t0", generation=1), member("c")]
    assert shown(assign_cooperatively(both, {"t": 2})) == {"a": "t1", "b": "t0", "c": ""}
    late = [member("a", owned="t0 t1", generation=1), member("b", generation=2), member("c", "u")]
    assert shown(assign_cooperatively(late, {"t": 2, "u": 0})) == {"a": "t0", "b": "", "c": ""}


def test_old_cooperative_member_reports_its_generation_in_user_data() -> None:
    old = Candidate("a", None, Subscription(("t",), partitions("t0"), user_data=(7).to_bytes(4, "big")))
    assert shown(assign_cooperatively([member("b", owned="t0", generation=6), old], {"t": 1})) == {"a": "t0", "b": ""}


TOPICS = st.fixed_dictionaries({"t": st.integers(1, 9), "u": st.integers(1, 9), "v": st.integers(1, 4)})
WANTS = st.dictionaries(
    st.sampled_from("abcdef"), st.sets(st.sampled_from(["t", "u", "v", "gone"]), min_size=1), min_size=1
)


def candidates(wants: Mapping[str, set[str]], had: Assignments, generation: int) -> list[Candidate]:
    return [
        Candidate(who, None, Subscription(tuple(topics), tuple(had.get(who, ())), generation))
        for who, topics in wants.items()
    ]


@given(st.sampled_from(sorted(ASSIGNORS)), TOPICS, st.lists(WANTS, min_size=1, max_size=4))
def test_every_subscribed_partition_has_one_subscribed_owner(
    name: str, topics: dict[str, int], generations: list[dict[str, set[str]]]
) -> None:
    had: Assignments = {}
    for generation, wants in enumerate(generations):
        members = candidates(wants, had, generation)
        given_ = ASSIGNORS[name](members, topics)
        assert set(given_) == set(wants)
        owned = [tp for tps in given_.values() for tp in tps]
        assert len(owned) == len(set(owned))
        for who, tps in given_.items():
            assert {tp.topic for tp in tps} <= wants[who]
        if name == "cooperative-sticky":
            others = {tp: who for who in wants for tp in had.get(who, ())}
            assert all(others.get(tp, who) == who for who, tps in given_.items() for tp in tps)
            # A partition that was only revoked is assigned in the next generation, which revokes no other.
            kept, given_ = given_, assign_cooperatively(candidates(wants, given_, generation + 1), topics)
            assert all(set(kept[who]) <= set(given_[who]) for who in wants)
            owned = [tp for tps in given_.values() for tp in tps]
        wanted = {topic for topics_ in wants.values() for topic in topics_} & topics.keys()
        assert set(owned) == {TopicPartition(topic, n) for topic in wanted for n in range(topics[topic])}
        had = given_


@given(TOPICS, st.lists(WANTS, min_size=1, max_size=4))
def test_sticky_is_even_and_keeps_an_unchanged_assignment(
    topics: dict[str, int], generations: list[dict[str, set[str]]]
) -> None:
    had: Assignments = {}
    for generation, wants in enumerate(generations):
        had = assign_sticky(candidates(wants, had, generation), topics)
        for who, tps in had.items():
            for tp in tps:
                for other, theirs in had.items():
                    assert tp.topic not in wants[other] or len(tps) <= len(theirs) + 1, (who, tp, other)
        assert assign_sticky(candidates(wants, had, generation), topics) == had


@st.composite
def small_groups(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[TopicPartition, str | None]]:
    """Draw subscriptions and previous owners, few enough that every possible assignment can be compared."""
    subscribers = {
        topic: sorted(draw(st.sets(st.sampled_from("abcd"), min_size=1)))
        for topic in draw(st.sampled_from(["t", "tu", "tuv"]))
    }
    tps = [TopicPartition(topic, number) for topic in subscribers for number in range(draw(st.integers(1, 2)))]
    return subscribers, {tp: draw(st.none() | st.sampled_from("abcd")) for tp in tps}


@given(small_groups())
def test_sticky_assignment_is_as_even_as_any(
    group: tuple[dict[str, list[str]], dict[TopicPartition, str | None]],
) -> None:
    subscribers, had = group
    owners = {tp: owner for tp, owner in had.items() if owner is not None}
    given_ = Balance("abcd", subscribers, had, owners).given
    loads = sorted(len(tps) for tps in given_.values())
    every = itertools.product(*(subscribers[tp.topic] for tp in had))
    least = min((sorted(chosen.count(who) for who in "abcd") for chosen in every), key=sum_of_squares)
    assert sum_of_squares(loads) == sum_of_squares(least)


def sum_of_squares(loads: list[int]) -> int:
    return sum(load**2 for load in loads)


def test_work_grows_with_members_times_partitions() -> None:
    topics = dict.fromkeys((f"t{number}" for number in range(10)), 100)
    everything = tuple(TopicPartition(topic, number) for topic in topics for number in range(100))
    members = [Candidate(f"m{n}", None, Subscription(tuple(topics), generation=1)) for n in range(99)]
    hog = Candidate("m99", None, Subscription(tuple(topics), everything, 1))
    given_: Assignments = {}
    lines = executed_lines(lambda: given_.update(assign_sticky([*members, hog], topics)))
    assert lines < 50 * len(everything) * 100
    assert {len(tps) for tps in given_.values()} == {10}


@given(st.integers(1, 40), st.sets(st.sampled_from("abcdefgh"), min_size=1), st.sets(st.sampled_from("abcdefgh")))
def test_sticky_moves_the_fewest_partitions(count: int, before: set[str], joined: set[str]) -> None:
    first = assign_sticky(candidates({who: {"t"} for who in before}, {}, 0), {"t": count})
    after = before | joined
    second = assign_sticky(candidates({who: {"t"} for who in after}, first, 1), {"t": count})
    kept = sum(len(set(first[who]) & set(second[who])) for who in before)
    least, more = divmod(count, len(after))
    held = sorted((len(first.get(who, ())) for who in after), reverse=True)
    quotas = [least + (nth < more) for nth in range(len(after))]
    assert kept == sum(map(min, held, quotas))
