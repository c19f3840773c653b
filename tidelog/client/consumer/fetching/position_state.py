"""Define the states of a consumer's partition, and the transitions between them (Kafka: SubscriptionState.FetchStates).

    AwaitingCommit   the group's committed offset must be looked up
    Resetting        the position must be looked up: at a time, or at an end of the log
    Failed           the partition has no position, because auto_offset_reset is "none"; the user must seek
    Validating       the partition has a position; its leader must confirm that it has the records before it (KIP-320)
    Fetching         the leader has confirmed that, or the epoch of these records is not known; records are fetched

A partition of a group starts in AwaitingCommit, any other partition in Resetting, or in Failed if auto_offset_reset is
"none". `Event` says what each event means, and `TRANSITIONS` is this table:

    event            before                      after
    COMMIT_FOUND     AwaitingCommit              Validating
    NO_COMMIT        AwaitingCommit              Resetting
    NO_START         AwaitingCommit              Failed
    SEEK             every state                 Validating
    RESET            every state                 Resetting
    OFFSET_FOUND     Resetting                   Validating
    LEADER_CHANGED   Fetching                    Validating
    LEADER_BEHIND    Validating                  the same
    NO_ANSWER        Validating                  the same
    VALIDATED        Validating                  Fetching
    DIVERGED         Validating                  the same
    FETCHED          Fetching                    the same
    REWOUND          Validating, Fetching        the same

An error of a broker is no event. The fetcher repeats the request of the same state after a pause, because the error may
end without the user. For example, a leader is elected, or an offset comes into range.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidelog.errors import InternalError
from tidelog.model import TopicPartition


@dataclass(frozen=True, slots=True)
class AwaitingCommit:
    """The partition waits for the group's committed offset.

    reset_to   the timestamp to look up if the group has no commit (ms, −1 latest, −2 earliest); None: there is none
    """

    reset_to: int | None


@dataclass(frozen=True, slots=True)
class Resetting:
    """The partition waits for the look-up of its position: timestamp `to` (ms, −1 latest, −2 earliest)."""

    to: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The partition has no position, and no rule says where to start."""


@dataclass(frozen=True, slots=True)
class Validating:
    """The partition has a position that its leader has not confirmed.

    behind_since_ms   since when a later leader is looked for, because the reader has read records of a later epoch than
                      the known leader's; None: no later leader is looked for
    """

    behind_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Fetching:
    """The partition has a valid position."""


PositionState = AwaitingCommit | Resetting | Failed | Validating | Fetching


class Event(Enum):
    """An event that may change a partition's state."""

    COMMIT_FOUND = "the coordinator returned the group's committed offset"
    NO_COMMIT = "the group has no committed offset, and auto_offset_reset says where to start"
    NO_START = "the group has no committed offset, and auto_offset_reset is 'none'"
    SEEK = "the user, or a poll that was interrupted, set the position"
    RESET = "the user seeks to an end of the log, or the position is invalid and auto_offset_reset is applied"
    OFFSET_FOUND = "a leader returned the offset of the look-up"
    LEADER_CHANGED = "another leader than the one that confirmed the position is known"
    LEADER_BEHIND = "the known leader has an earlier epoch than records that were read"
    NO_ANSWER = "the leader did not answer the validation, so that it may have been replaced"
    VALIDATED = "the leader has the records before the position, or their epoch is not known"
    DIVERGED = "the leader's log differs before the position, and the reader goes back there"
    FETCHED = "the leader answered a fetch"
    REWOUND = "fetched records were discarded, and are fetched again"


_Kind = type[AwaitingCommit | Resetting | Failed | Validating | Fetching]
_EVERY_STATE: tuple[_Kind, ...] = (AwaitingCommit, Resetting, Failed, Validating, Fetching)

#: For each event the states in which it may occur, each with the state that follows.
TRANSITIONS: dict[Event, dict[_Kind, _Kind]] = {
    Event.COMMIT_FOUND: {AwaitingCommit: Validating},
    Event.NO_COMMIT: {AwaitingCommit: Resetting},
    Event.NO_START: {AwaitingCommit: Failed},
    Event.SEEK: dict.fromkeys(_EVERY_STATE, Validating),
    Event.RESET: dict.fromkeys(_EVERY_STATE, Resetting),
    Event.OFFSET_FOUND: {Resetting: Validating},
    Event.LEADER_CHANGED: {Fetching: Validating},
    Event.LEADER_BEHIND: {Validating: Validating},
    Event.NO_ANSWER: {Validating: Validating},
    Event.VALIDATED: {Validating: Fetching},
    Event.DIVERGED: {Validating: Validating},
    Event.FETCHED: {Fetching: Fetching},
    Event.REWOUND: {Validating: Validating, Fetching: Fetching},
}


def next_state(tp: TopicPartition, state: PositionState, event: Event, *details: Any) -> PositionState:
    """Return the partition's next state, with these details; InternalError if the event may not occur in `state`."""
    following = TRANSITIONS[event].get(type(state))
    if following is None:
        raise InternalError(f"{tp}: event {event.name} may not occur in state {type(state).__name__} ({event.value})")
    return following(*details)
