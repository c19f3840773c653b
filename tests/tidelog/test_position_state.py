"""Test the transition table of a consumer's partition: every pair of a state and an event."""

from __future__ import annotations

import re

import pytest

from tidelog.client.consumer.fetching import position_state
from tidelog.client.consumer.fetching.position_state import (
    AwaitingCommit,
    Event,
    Failed,
    Fetching,
    PositionState,
    Resetting,
    Validating,
    next_state,
)
from tidelog.errors import InternalError
from tidelog.model import EARLIEST_TIMESTAMP, TopicPartition

P0 = TopicPartition("t", 0)
STATES: dict[str, PositionState] = {
    "AwaitingCommit": AwaitingCommit(None),
    "Resetting": Resetting(EARLIEST_TIMESTAMP),
    "Failed": Failed(),
    "Validating": Validating(),
    "Fetching": Fetching(),
}
#: The details that an event brings for the state that follows.
DETAILS = {Event.NO_COMMIT: (20,), Event.RESET: (20,), Event.LEADER_BEHIND: (30,)}
#: One row for each event, one column for each state before it; "." means that the event may not occur.
TABLE = """
                 AwaitingCommit  Resetting   Failed      Validating  Fetching
COMMIT_FOUND     Validating      .           .           .           .
NO_COMMIT        Resetting       .           .           .           .
NO_START         Failed          .           .           .           .
SEEK             Validating      Validating  Validating  Validating  Validating
RESET            Resetting       Resetting   Resetting   Resetting   Resetting
OFFSET_FOUND     .               Validating  .           .           .
LEADER_CHANGED   .               .           .           .           Validating
LEADER_BEHIND    .               .           .           Validating  .
NO_ANSWER        .               .           .           Validating  .
VALIDATED        .               .           .           Fetching    .
DIVERGED         .               .           .           Validating  .
FETCHED          .               .           .           .           Fetching
REWOUND          .               .           .           Validating  Fetching
"""


def pairs() -> list[tuple[str, str, str]]:
    head, *rows = [line.split() for line in TABLE.strip().splitlines()]
    return [(state, event, follows) for event, *cells in rows for state, follows in zip(head, cells, strict=True)]


@pytest.mark.parametrize(("before", "event", "follows"), pairs())
def test_each_pair_of_state_and_event_has_its_result(before: str, event: str, follows: str) -> None:
    details = DETAILS.get(Event[event], ())
    if follows == ".":
        with pytest.raises(InternalError, match=f"^t-0: event {event} may not occur in state {before} "):
            next_state(P0, STATES[before], Event[event], *details)
    else:
        assert type(next_state(P0, STATES[before], Event[event], *details)).__name__ == follows


def test_table_has_every_event_and_every_state() -> None:
    assert {event for _, event, _ in pairs()} == {event.name for event in Event}
    assert {state for state, _, _ in pairs()} == set(STATES)


def test_docstring_has_the_table() -> None:
    lines = (position_state.__doc__ or "").partition("event  ")[2].partition("\n\n")[0].splitlines()[1:]
    described = set()
    for line in lines:
        event, before, after = re.split(r" {2,}", line.strip())
        for state in STATES if before == "every state" else before.split(", "):
            described.add((state, event, state if after == "the same" else after))
    assert described == {pair for pair in pairs() if pair[2] != "."}


def test_details_of_an_event_are_those_of_the_state_that_follows() -> None:
    assert next_state(P0, AwaitingCommit(20), Event.NO_COMMIT, 20) == Resetting(20)
    assert next_state(P0, Fetching(), Event.RESET, 20) == Resetting(20)
    assert next_state(P0, Validating(), Event.LEADER_BEHIND, 30) == Validating(30)
    assert next_state(P0, Validating(30), Event.NO_ANSWER) == Validating()
