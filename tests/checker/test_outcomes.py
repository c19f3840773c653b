"""Test the guarantees of errors by name."""

from __future__ import annotations

from tidelog import errors
from verify.checker.outcomes import DOCUMENTED, PRODUCE_FAILED, Outcome, commit_outcome, error_name, produce_outcome

#: Errors after which the records were definitely not appended.
DEFINITE = (2, 3, 10, 17, 18, 19, 29, 32, 35, 87)
#: Errors after which the records may have been appended.
UNKNOWN = (6, 7, 20, 56, -1)


def test_only_errors_before_the_append_fail_a_produce_request() -> None:
    for code in DEFINITE:
        assert produce_outcome([error_name(code)]) is Outcome.FAILED
    for name in (*map(error_name, UNKNOWN), "DISCONNECTED", "TIMEOUT", "NOBODY_KNOWS"):
        assert produce_outcome([name]) is Outcome.UNKNOWN


def test_one_attempt_of_unknown_outcome_makes_the_outcome_unknown() -> None:
    assert produce_outcome(["NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"]) is Outcome.FAILED
    assert produce_outcome(["REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS"]) is Outcome.UNKNOWN
    assert commit_outcome(["NOT_COORDINATOR", "ILLEGAL_GENERATION"]) is Outcome.UNKNOWN


def test_error_names_are_those_of_the_protocol() -> None:
    assert error_name(6) == error_name(errors.NotLeaderOrFollowerError) == "NOT_LEADER_OR_FOLLOWER"
    assert error_name(errors.StorageError()) == "KAFKA_STORAGE_ERROR"
    assert error_name(-1) == error_name(4711) == "UNKNOWN_SERVER_ERROR"
    assert error_name(0) == "NONE"
    assert error_name(errors.TimeoutError("late")) == "TIMEOUT"


def test_unexpected_broker_errors_are_not_documented() -> None:
    assert DOCUMENTED.isdisjoint({"UNKNOWN_SERVER_ERROR", "INTERNAL"})
    assert "NOT_LEADER_OR_FOLLOWER" in DOCUMENTED
    assert PRODUCE_FAILED < DOCUMENTED
