"""Test the end offsets returned to clients (I8) and gaps without acknowledgements (I19), case by case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.checker.judging import verdict_on, verdict_on_all
from tidelog.history.broker_events import BecomeFollower, BecomeLeader, Broker
from tidelog.history.events import Event
from tidelog.history.operations import (
    Client,
    EarliestOk,
    LatestOk,
    LookUpOk,
    ProduceFailed,
    ProduceInvoked,
    ProduceOk,
    ProduceUnknown,
    Read,
    ReadFailed,
    TrimInvoked,
    TrimOk,
    TrimUnknown,
)
from tidelog.model import TopicPartition
from verify.checker.checker import Checker
from verify.checker.findings import Finding
from verify.checker.inputs.logs import FinalLog
from verify.checker.invariant import Ending, Window

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def found(key: str, taken: Sequence[Event], *windows: Window) -> Sequence[Finding]:
    return verdict_on(taken, key, ending=Ending(windows=windows)).findings


def produced(*acknowledged: tuple[int, int], tp: TopicPartition = TP, first: int = 0) -> list[Event]:
    """Return a history of records, each given by the times of its send and its acknowledgement."""
    taken: list[Event] = []
    for number, (t0, t1) in enumerate(acknowledged, first):
        taken += [ProduceInvoked(tp, [number], [5], [t0]), ProduceOk(tp, [number], [number], [t1])]
    return taken


# --- I8 --------------------------------------------------------------------------------------------------------------


def refused(offset: int = 2, t0: int = 50, t1: int = 60, error: str = "OFFSET_OUT_OF_RANGE") -> ReadFailed:
    return ReadFailed(TP, error, t0, t1, 1, offset)


THREE = produced((1, 2), (3, 4), (5, 6))


def test_acknowledged_offset_must_not_be_out_of_range() -> None:
    assert len(found("I8", [*THREE, refused()])) == 1
    assert len(found("I8", [*THREE, refused(0)])) == 1


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param([*THREE, refused(3)], id="behind all that was acknowledged"),
        pytest.param([*THREE, refused(2, t0=6)], id="acknowledged when it was asked for"),
        pytest.param([refused()], id="nothing was acknowledged"),
        pytest.param([*THREE, refused(error="NOT_LEADER_OR_FOLLOWER")], id="another error"),
        pytest.param([*THREE, refused(-1)], id="of no offset"),
        pytest.param([*THREE, TrimOk(TP, 3, 20, 30), refused()], id="trimmed"),
        pytest.param([*THREE, TrimInvoked(TP, 3, 60), refused()], id="just being trimmed"),
        pytest.param([*THREE, TrimUnknown(TP, 3, "TIMEOUT", 60, 90), refused()], id="perhaps trimmed meanwhile"),
    ],
)
def test_permitted_out_of_range_errors_are_no_violation(taken: list[Event]) -> None:
    assert not found("I8", taken)


@pytest.mark.parametrize(
    "trim",
    [TrimOk(TP, 2, 20, 30), TrimOk(OTHER, 3, 20, 30), TrimOk(TP, 3, 61, 70)],
    ids=["before it", "of another partition", "after the answer"],
)
def test_trim_of_another_partition_or_offset_excuses_nothing(trim: TrimOk) -> None:
    assert len(found("I8", [*THREE, trim, refused()])) == 1


def test_returned_end_offset_is_at_least_every_earlier_one() -> None:
    (back,) = found("I8", [LatestOk(TP, 7, 1, 2, epoch=3), LatestOk(TP, 6, 3, 4)])
    assert back.says == "the returned end offset was 6, but 7 before that"
    assert [" in epoch 3" in each for each in back.operations] == [True, False]
    assert not found("I8", [LatestOk(TP, 7, 1, 2), LatestOk(TP, 6, 2, 4)]), "asked before the answer was there"
    assert not found("I8", [LatestOk(TP, 7, 1, 2), LatestOk(TP, 7, 3, 4)])
    assert not found("I8", [LatestOk(OTHER, 7, 1, 2), LatestOk(TP, 6, 3, 4)])


def test_returned_end_offset_is_above_earlier_acknowledgements() -> None:
    assert len(found("I8", [*THREE, LatestOk(TP, 2, 7, 8)])) == 1
    assert not found("I8", [*THREE, LatestOk(TP, 3, 7, 8)])
    assert not found("I8", [*THREE, LatestOk(TP, 2, 6, 8)])


def test_first_offset_is_at_most_the_highest_trim_request() -> None:
    skipped = EarliestOk(TP, 2, 7, 8)
    assert len(found("I8", [*THREE, skipped])) == 1
    assert len(found("I8", [*THREE, TrimOk(TP, 1, 2, 3), skipped])) == 1
    assert len(found("I8", [*THREE, TrimOk(TP, 2, 9, 10), skipped])) == 1, "asked for later"
    assert not found("I8", [*THREE, TrimOk(TP, 2, 2, 3), skipped])
    assert not found("I8", [*THREE, TrimUnknown(TP, 2, "REQUEST_TIMED_OUT", 8, 9), skipped])
    assert not found("I8", [*THREE, EarliestOk(TP, 0, 7, 8)])


FINAL = FinalLog("1", TP, 2, 3, 3, None, range(2, 3), [2], [5], [1])
TRIMMED = [*THREE, TrimOk(TP, 2, 20, 30)]


def test_first_offset_is_at_least_the_acknowledged_trim() -> None:
    (undone,) = found("I8", [*TRIMMED, EarliestOk(TP, 1, 31, 40)])
    assert undone.says == "the returned first offset was 1, but records below 2 had been trimmed"
    assert "trim to 2" in undone.operations[0]
    assert not found("I8", [*TRIMMED, EarliestOk(TP, 2, 31, 40)])
    assert not found("I8", [*TRIMMED, EarliestOk(TP, 1, 30, 40)]), "asked before it was done"
    unknown = TrimUnknown(TP, 2, "REQUEST_TIMED_OUT", 20, 30)
    assert not found("I8", [*THREE, unknown, EarliestOk(TP, 1, 31, 40)]), "perhaps not done"


def reported_by(who: str, *taken: Event) -> list[tuple[str, Event]]:
    return [(who, event) for event in taken]


LED = reported_by("1", BecomeLeader(1, TP, 1, 0, 0))
LED_SINCE = reported_by("2", BecomeLeader(15, TP, 2, 3, 3))
#: The answers that broker 1 may give after the trim, as long as it does not know that broker 2 is the leader.
PAST = {"I8": EarliestOk(TP, 1, 31, 40), "I18": LookUpOk(TP, 5, 1, 31, 40, ts=5)}


@pytest.mark.parametrize("key", PAST)
def test_replaced_leader_may_not_know_a_trim(key: str) -> None:
    def violations(*brokers: tuple[str, Event]) -> int:
        taken = [*brokers, *reported_by("client", *TRIMMED, PAST[key])]
        return len(verdict_on_all(taken, key, ending=Ending({TP: [FINAL]})).findings)

    assert violations(*LED) == 1, "it leads, and has heard of it"
    assert violations(*LED, *LED_SINCE) == 0
    assert violations(*LED, *LED_SINCE, *reported_by("1", BecomeFollower(35, TP, 2, 2))) == 0, (
        "when it was asked it led"
    )
    assert violations(*LED, *LED_SINCE, *reported_by("1", BecomeFollower(30, TP, 2, 2))) == 1
    assert violations(*LED, *reported_by("2", BecomeLeader(41, TP, 2, 3, 3))) == 1, "deposed after it had answered"


def test_ended_process_does_not_excuse_an_old_answer() -> None:
    checker = Checker()
    one, two, client = checker.begin(Broker("1")), checker.begin(Broker("2")), checker.begin(Client("client"))
    checker.take(one, LED[0][1])
    checker.take(two, LED_SINCE[0][1])
    checker.begin(Broker("1", 19))
    for event in [*TRIMMED, PAST["I8"]]:
        checker.take(client, event)
    assert len(checker.conclude(Ending()).only(["I8"]).findings) == 1


def test_no_final_log_begins_below_an_acknowledged_trim() -> None:
    whole = replace(FINAL, broker="2", log_start=1, offsets=range(1, 3), ids=[1, 2], ts=[5, 5], leader_epochs=[1, 1])
    ending = Ending({TP: [FINAL, whole]})
    (undone,) = verdict_on(TRIMMED, "I8", ending=ending).findings
    assert undone.says == "broker 2's log begins at 1, but records below 2 had been trimmed"
    assert not verdict_on(THREE, "I8", ending=ending).findings
    assert not verdict_on([*THREE, TrimInvoked(TP, 2, 20)], "I8", ending=ending).findings


@pytest.mark.parametrize(("begun", "taken", "left"), [(20, 1, 1), (29, 0, 0), (35, 0, 0), (45, 1, 0)])
@pytest.mark.parametrize("repeated", [[], [TrimOk(TP, 2, 50, 60)]], ids=["once", "trimmed twice"])
def test_restarted_broker_may_have_forgotten_a_trim(
    begun: int, taken: int, left: int, repeated: Sequence[Event]
) -> None:
    """A leader that does not learn of the restart answers a second trim by what the earlier process reported."""

    def violations(*events: Event, ending: Ending) -> int:
        checker = Checker()
        checker.begin(Broker("1", 1))
        client = checker.begin(Client("c"))
        for event in (*TRIMMED, *events):
            checker.take(client, event)
        checker.begin(Broker("1", begun))
        return len(checker.conclude(ending).only(["I8"]).findings)

    assert violations(EarliestOk(TP, 1, 31, 40), *repeated, ending=Ending()) == taken
    assert violations(*repeated, ending=Ending({TP: [replace(FINAL, log_start=1)]})) == left * (1 + len(repeated))


def test_trim_to_a_higher_offset_after_the_restart_is_not_forgotten() -> None:
    checker = Checker()
    checker.begin(Broker("1", 1))
    client = checker.begin(Client("c"))
    for event in (*THREE, TrimOk(TP, 1, 20, 30), TrimOk(TP, 2, 50, 60)):
        checker.take(client, event)
    checker.begin(Broker("1", 35))
    (undone,) = checker.conclude(Ending({TP: [replace(FINAL, log_start=0)]})).only(["I8"]).findings
    assert undone.says == "broker 1's log begins at 0, but records below 2 had been trimmed"


# --- I19 -------------------------------------------------------------------------------------------------------------


def window(**differing: int | str | None) -> Window:
    """Return a window from 100 to 200 with recovery at 300."""
    return Window("F1", 100, 200, 300, **differing)  # type: ignore[arg-type]


GAP = produced((90, 95), (110, 160), (170, 190), (290, 295))


def test_gap_lasts_from_a_waiting_request_to_the_next_acknowledgement() -> None:
    (gap,) = found("I19", GAP, window(most_gap_ns=49))
    assert "no acknowledgement from 0.000000 s to 0.000000 s" in gap.operations[0] and gap.t == 160
    assert not found("I19", GAP, window(most_gap_ns=50))


def test_gap_may_last_until_the_full_recovery() -> None:
    waiting = [*GAP, ProduceInvoked(TP, [9], [5], [296]), ProduceUnknown(TP, [9], ["TIMEOUT"], [900])]
    assert not found("I19", waiting, window(most_gap_ns=50))
    long_before = [*produced((90, 95)), ProduceInvoked(TP, [9], [5], [120])]
    (gap,) = found("I19", long_before, window(most_gap_ns=179))
    assert gap.t == 300
    assert not found("I19", long_before, window(most_gap_ns=180))


@pytest.mark.parametrize("behind", [[], [(102, 151)]], ids=["alone", "with another behind it"])
def test_request_from_before_the_fault_waits_since_the_fault(behind: list[tuple[int, int]]) -> None:
    early = produced((90, 95), (96, 150), *behind)
    assert len(found("I19", early, window(most_gap_ns=49))) == 1
    assert not found("I19", early, window(most_gap_ns=50))


def test_gap_that_reaches_the_next_fault_ends_there() -> None:
    lasting = produced((90, 95), (110, 160), (170, 190), (200, 290), (295, 900))
    follows = Window("F2", 350, 800, 950, most_gap_ns=550)
    assert not found("I19", lasting, window(most_gap_ns=90), follows)
    (gap,) = found("I19", lasting, window(most_gap_ns=90))
    assert gap.t == 900
    (gap,) = found("I19", lasting, window(most_gap_ns=90), Window("F2", 350, 800, 950, most_gap_ns=549))
    assert "F2" in gap.says
    assert found("I19", lasting, window(most_gap_ns=54), follows)[-1].t == 350, "until then it is the first one's"


def test_gap_of_a_waiting_request_begins_at_the_last_acknowledgement() -> None:
    taken = produced((90, 95), (110, 180), (111, 130))
    assert len(found("I19", taken, window(most_gap_ns=49))) == 1
    assert not found("I19", taken, window(most_gap_ns=50))


@pytest.mark.parametrize("end", [ProduceUnknown, ProduceFailed])
def test_request_that_gives_up_waits_until_then(end: type[ProduceUnknown | ProduceFailed]) -> None:
    taken = [*produced((90, 95)), ProduceInvoked(TP, [9], [5], [96]), end(TP, [9], ["REQUEST_TIMED_OUT"], [180])]
    for later in ([], produced((250, 260), first=10)):
        assert len(found("I19", [*taken, *later], window(most_gap_ns=79))) == 1
        assert not found("I19", [*taken, *later], window(most_gap_ns=80))
    (gap,) = found("I19", [*taken, *produced((170, 260), first=10)], window(most_gap_ns=159))
    assert gap.t == 260, "the second record was sent before the first one gave up"


def test_request_without_an_end_from_before_the_fault_does_not_wait() -> None:
    killed = [*produced((90, 95)), ProduceInvoked(TP, [9], [5], [96])]
    assert not found("I19", killed, window(most_gap_ns=1))
    assert not found("I19", [*killed, *produced((400, 401), first=10)], window(most_gap_ns=1))


def test_partition_without_produce_requests_is_not_unavailable() -> None:
    assert not found("I19", produced((90, 95), (400, 401)), window(most_gap_ns=1))


def test_partition_that_never_acknowledged_has_one_long_gap() -> None:
    served = produced(*((t, t + 1) for t in range(90, 310, 10)), tp=OTHER, first=100)
    assert len(found("I19", [*GAP, *served], window(most_gap_ns=49))) == 1
    never = [*served, ProduceInvoked(TP, [9], [5], [120])]
    (gap,) = found("I19", never, window(most_gap_ns=179))
    assert (gap.tp, gap.t) == (TP, 300)
    assert not found("I19", never, window(most_gap_ns=180))


def test_availability_ignores_producers_without_acks_all() -> None:
    taken = [ProduceInvoked(TP, [9], [5], [120])]
    bound = Ending(windows=[window(most_gap_ns=49)])
    assert len(verdict_on(taken, "I19", ending=bound).findings) == 1
    for acks in (0, 1):
        assert not verdict_on(taken, "I19", ending=bound, client=Client("c", acks=acks)).findings


def test_fault_without_a_bound_has_no_limit() -> None:
    assert not found("I19", GAP, window())


def test_operations_are_successful_produces_and_reads_during_the_fault() -> None:
    reads: list[Event] = [Read(TP, 1, 9, 120, 130, [5], [5], [5]), Read(TP, 1, 9, 131, 135, [], [], [])]
    taken = [*GAP, *reads]
    assert not found("I19", taken, window(least_operations=3)), "two were acknowledged, and one read brought something"
    (few,) = found("I19", taken, window(least_operations=4))
    assert few.says.startswith("3 operations succeeded during F1")
    at_its_edges = produced((1, 99), (1, 100), (1, 200), (1, 201))
    assert not found("I19", at_its_edges, window(least_operations=2))
    assert found("I19", at_its_edges, window(least_operations=3))


def test_operation_soon_after_the_permitted_pause_counts() -> None:
    second = 1_000_000_000
    late = produced((110, 2 * second + 100), (110, 3 * second + 100), (110, 3 * second + 101))
    assert not found("I19", late, window(most_gap_ns=2 * second, least_operations=2))
    (few,) = found("I19", late, window(most_gap_ns=2 * second, least_operations=3))
    assert few.says.startswith("2 operations succeeded during F1") and few.t == 3 * second + 100


def test_operations_count_until_a_long_fault_is_healed() -> None:
    second = 1_000_000_000
    taken = produced((110, second), (9 * second - 1, 9 * second), (9 * second, 9 * second + 1))
    long = Window("F37", 100, 9 * second, 10 * second, most_gap_ns=2 * second, least_operations=2)
    assert not found("I19", taken, long)
    (few,) = found("I19", taken, replace(long, least_operations=3))
    assert few.t == 9 * second


def test_operation_during_the_next_fault_counts_for_that_fault() -> None:
    second = 1_000_000_000
    late = produced((110, 150), (110, 500), (510, 600))
    first = window(most_gap_ns=2 * second, least_operations=2)
    following = Window("F2", 400, 700, 800, most_gap_ns=2 * second, least_operations=2)
    (few,) = verdict_on(late, "I19", ending=Ending(windows=[first, following])).findings
    assert few.says.startswith("1 operations succeeded during F1") and few.t == 400


def test_recovery_may_take_its_limit_and_no_longer() -> None:
    assert not found("I19", GAP, window(most_healing_ns=100))
    assert len(found("I19", GAP, window(most_healing_ns=99))) == 1


def test_other_exceeded_bound_is_reported_with_its_time() -> None:
    (broke,) = found("I19", GAP, window(broke="broker 2 took too long"))
    assert (broke.says, broke.t) == ("F1: broker 2 took too long", 300)
    assert broke.operations
