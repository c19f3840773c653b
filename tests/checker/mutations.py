"""What a broken log would have made of a right history, one fault at a time; each says which invariant it breaks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tests.checker.little_log import MS, TIMEOUT_MS, Story
from tidelog.checker import events as ev
from tidelog.checker.events import Event
from tidelog.checker.invariant import Ending
from tidelog.checker.logs import READ, EpochStart, FinalLog
from tidelog.model import TopicPartition

E = TypeVar("E")
#: Nobody ever produced it.
STRANGER = 99 << 40 | 7


class NothingToSpoil(Exception):
    """The history has nothing that this fault could befall."""


@dataclass(frozen=True)
class Mutation:
    """`on_the_way`: whether it is found before the end, too, by who asks after every event."""

    name: str
    breaks: str
    spoil: Callable[[Story, random.Random], Story]
    on_the_way: bool

    def __str__(self) -> str:
        return self.name


MUTATIONS: list[Mutation] = []


def mutation(breaks: str, *, on_the_way: bool = False) -> Callable[[Any], Any]:
    def enlist(spoil: Callable[[Story, random.Random], Story]) -> Callable[[Story, random.Random], Story]:
        MUTATIONS.append(Mutation(spoil.__name__, breaks, spoil, on_the_way))
        return spoil

    return enlist


# --- tools -----------------------------------------------------------------------------------------


def all_of(story: Story, kind: type[E], fits: Callable[[E], bool] = lambda _: True) -> list[tuple[int, str, E]]:
    """(place, who, event)"""
    return [
        (place, name, event)
        for place, (name, event) in enumerate(story.told)
        if isinstance(event, kind) and fits(event)
    ]


def one_of(
    story: Story, dice: random.Random, kind: type[E], fits: Callable[[E], bool] = lambda _: True
) -> tuple[int, str, E]:
    found = all_of(story, kind, fits)
    if not found:
        raise NothingToSpoil
    return dice.choice(found)


def put(story: Story, place: int, *told: tuple[str, Event], instead: bool = True) -> Story:
    return replace(story, told=[*story.told[:place], *told, *story.told[place + instead :]])


def behind(story: Story, name: str, event: Event) -> Story:
    return replace(story, told=[*story.told, (name, event)])


def end(story: Story) -> int:
    return max(getattr(event, "t1", 0) for _, event in story.told)


def logs(story: Story, change: Callable[[FinalLog], FinalLog], tp: TopicPartition) -> Story:
    changed = {**story.ending.logs, tp: [change(log) for log in story.ending.logs[tp]]}
    return replace(story, ending=Ending(changed, story.ending.windows))


def cut(log: FinalLog, leo: int) -> FinalLog:
    """The log as if it ended there."""
    columns = range(leo), log.ids[:leo], log.ts[:leo], log.leader_epochs[:leo]
    batches = [batch for batch in log.batches if batch.last < leo]
    epochs = None if log.epochs is None else [each for each in log.epochs if each.start_offset < leo]
    return FinalLog(log.broker, log.tp, 0, leo, leo, epochs, *columns, batches)


def longer(log: FinalLog, record_id: int) -> FinalLog:
    """The log with one more record."""
    place = log.leo
    columns = (
        range(place + 1),
        [*log.ids, record_id],
        [*log.ts, log.ts[-1]],
        [*log.leader_epochs, log.leader_epochs[-1]],
    )
    return FinalLog(log.broker, log.tp, 0, place + 1, place + 1, log.epochs, *columns, log.batches)


def swapped(values: Sequence[int], one: int, other: int) -> list[int]:
    return [other if each == one else one if each == other else each for each in values]


def spoilt(read: ev.Read, at: int, record_id: int) -> ev.Read:
    return replace(read, ids=[*read.ids[:at], record_id, *read.ids[at + 1 :]])


def acknowledged(story: Story, tp: TopicPartition) -> list[tuple[int, int, int]]:
    """(offset, id, when) of each acknowledgement."""
    return [
        (offset, record_id, t)
        for _, _, event in all_of(story, ev.ProduceOk, lambda each: each.tp == tp)
        for offset, record_id, t in zip(event.offsets, event.ids, event.t, strict=True)
    ]


# --- records ---------------------------------------------------------------------------------------


@mutation("I1")
def lost_record(story: Story, dice: random.Random) -> Story:
    _, _, event = one_of(story, dice, ev.ProduceOk)
    return logs(story, lambda log: cut(log, event.offsets[0]), event.tp)


@mutation("I1")
def lost_in_one_replica(story: Story, dice: random.Random) -> Story:
    _, _, event = one_of(story, dice, ev.ProduceOk)
    return logs(story, lambda log: cut(log, event.offsets[-1]) if log.broker == "2" else log, event.tp)


@mutation("I1", on_the_way=True)
def elected_without_what_was_acknowledged(story: Story, dice: random.Random) -> Story:
    _, _, event = one_of(story, dice, ev.ProduceOk)
    t = end(story)
    return behind(story, "3", ev.BecomeLeader(t, event.tp, 1000, event.offsets[-1], 0))


@mutation("I2")
def acknowledged_at_anothers_offset(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.ProduceOk, lambda each: each.offsets[0] > 0)
    return put(story, place, (name, replace(event, offsets=[each - 1 for each in event.offsets])))


@mutation("I3")
def doubled_record(story: Story, dice: random.Random) -> Story:
    _, _, event = one_of(story, dice, ev.ProduceOk)
    return logs(story, lambda log: longer(log, event.ids[0]), event.tp)


@mutation("I3", on_the_way=True)
def read_twice_at_two_offsets(story: Story, dice: random.Random) -> Story:
    place, name, read = one_of(story, dice, ev.Read, lambda each: len(each.ids) > 1)
    return put(story, place, (name, spoilt(read, 1, read.ids[0])))


def _reordered(story: Story, tp: TopicPartition, one: tuple[int, int, int], other: tuple[int, int, int]) -> Story:
    """As if the log had taken these two the other way round, and everybody had seen it so."""

    def change(event: Event) -> Event:
        if getattr(event, "tp", None) == tp and isinstance(event, ev.ProduceOk):
            return replace(event, offsets=swapped(event.offsets, one[0], other[0]))
        if getattr(event, "tp", None) == tp and isinstance(event, ev.Read):
            return replace(event, ids=swapped(event.ids, one[1], other[1]))
        return event

    told = replace(story, told=[(name, change(event)) for name, event in story.told])
    return logs(told, lambda log: replace(log, ids=swapped(log.ids, one[1], other[1])), tp)


@mutation("I5", on_the_way=True)
def reordered_against_time(story: Story, dice: random.Random) -> Story:
    invoked = {each: event.t[0] for _, _, event in all_of(story, ev.ProduceInvoked) for each in event.ids}
    pairs = [
        (tp, one, other)
        for tp in story.ending.logs
        for one in acknowledged(story, tp)
        for other in acknowledged(story, tp)
        if one[2] < invoked[other[1]]
    ]
    return _reordered(story, *dice.choice(pairs))


@mutation("I6", on_the_way=True)
def reordered_records_of_one_producer(story: Story, dice: random.Random) -> Story:
    pairs = [
        (tp, one, other)
        for tp in story.ending.logs
        for one in acknowledged(story, tp)
        for other in acknowledged(story, tp)
        if one[1] >> 40 == other[1] >> 40 and one[1] < other[1]
    ]
    return _reordered(story, *dice.choice(pairs))


@mutation("I4", on_the_way=True)
def phantom_record(story: Story, dice: random.Random) -> Story:
    place, name, read = one_of(story, dice, ev.Read, lambda each: len(each.ids) > 0)
    return put(story, place, (name, spoilt(read, 0, STRANGER)))


@mutation("I4")
def phantom_in_the_log(story: Story, dice: random.Random) -> Story:
    return logs(story, lambda log: longer(log, STRANGER), dice.choice(list(story.ending.logs)))


@mutation("I4", on_the_way=True)
def altered_record(story: Story, dice: random.Random) -> Story:
    place, name, read = one_of(story, dice, ev.Read, lambda each: len(each.ids) > 0)
    return put(story, place, (name, spoilt(read, 0, ev.DAMAGED)))


@mutation("I4", on_the_way=True)
def misplaced_record(story: Story, dice: random.Random) -> Story:
    place, name, read = one_of(story, dice, ev.Read, lambda each: len(each.ids) > 0)
    _, _, other = one_of(story, dice, ev.ProduceInvoked, lambda each: each.tp != read.tp)
    return put(story, place, (name, spoilt(read, 0, other.ids[0])))


@mutation("I4")
def aborted_record_in_the_log(story: Story, dice: random.Random) -> Story:
    _, _, event = one_of(story, dice, ev.ProduceFailed)
    return logs(story, lambda log: longer(log, event.ids[0]), event.tp)


@mutation("I4", on_the_way=True)
def aborted_read(story: Story, dice: random.Random) -> Story:
    place, name, read = one_of(story, dice, ev.Read, lambda each: len(each.ids) > 0)
    _, _, event = one_of(story, dice, ev.ProduceFailed, lambda each: each.tp == read.tp)
    return put(story, place, (name, spoilt(read, 0, event.ids[0])))


# --- readers ---------------------------------------------------------------------------------------


@mutation("I7", on_the_way=True)
def gap_in_what_is_read(story: Story, dice: random.Random) -> Story:
    place, name, read = one_of(story, dice, ev.Read, lambda each: len(each.ids) > 2)
    columns = {key: [getattr(read, key)[0], *getattr(read, key)[2:]] for key in ("offsets", "ids", "ts")}
    return put(story, place, (name, replace(read, **columns)))


@mutation("I7", on_the_way=True)
def repeated_for_a_reader(story: Story, dice: random.Random) -> Story:
    place, name, read = one_of(story, dice, ev.Read, lambda each: len(each.ids) > 0)
    return put(story, place, (name, read), (name, read))


@mutation("I8", on_the_way=True)
def end_that_goes_back(story: Story, dice: random.Random) -> Story:
    _, name, event = one_of(story, dice, ev.LatestOk, lambda each: each.offset > 1)
    t = end(story)
    return behind(story, name, replace(event, offset=event.offset - 1, t0=t + 1, t1=t + 2))


@mutation("I8", on_the_way=True)
def end_before_what_was_acknowledged(story: Story, dice: random.Random) -> Story:
    place, _, event = one_of(story, dice, ev.ProduceOk)
    latest = ev.LatestOk(event.tp, event.offsets[-1], event.t[0] + 1, event.t[0] + 2)
    return put(story, place + 1, ("reader-1", latest), instead=False)


@mutation("I8", on_the_way=True)
def acknowledged_offset_out_of_range(story: Story, dice: random.Random) -> Story:
    _, _, event = one_of(story, dice, ev.ProduceOk)
    t = end(story)
    return behind(story, "reader-1", ev.ReadFailed(event.tp, "OFFSET_OUT_OF_RANGE", t + 1, t + 2, 1, event.offsets[0]))


@mutation("I9")
def dirty_read(story: Story, dice: random.Random) -> Story:
    """A reader is shown what a leader had that was deposed before anybody else had it."""
    _, _, event = one_of(story, dice, ev.ProduceUnknown)
    tp = event.tp
    leo = story.ending.logs[tp][0].leo
    t = end(story)
    return behind(story, "reader-1", ev.Read(tp, 999, leo + 1, t + 1, t + 2, [leo], [event.ids[0]], [0]))


@mutation("I9")
def altered_timestamp(story: Story, dice: random.Random) -> Story:
    place, name, read = one_of(story, dice, ev.Read, lambda each: len(each.ids) > 0)
    return put(story, place, (name, replace(read, ts=[read.ts[0] + 1, *read.ts[1:]])))


@mutation("I10", on_the_way=True)
def read_above_the_high_watermark(story: Story, dice: random.Random) -> Story:
    place, name, read = one_of(story, dice, ev.Read, lambda each: len(each.ids) > 0)
    return put(story, place, (name, replace(read, hw=read.offsets[-1])))


@mutation("I10", on_the_way=True)
def high_watermark_that_nobody_had(story: Story, dice: random.Random) -> Story:
    place, name, read = one_of(story, dice, ev.Read)
    return put(story, place, (name, replace(read, hw=10_000)))


@mutation("I18")
def wrong_look_up(story: Story, dice: random.Random) -> Story:
    def has_a_next(each: ev.LookUpOk) -> bool:
        log = story.ending.logs[each.tp][0]
        return 0 <= each.offset < log.leo - 1

    place, name, asked = one_of(story, dice, ev.LookUpOk, has_a_next)
    following = asked.offset + 1
    ts = story.ending.logs[asked.tp][0].ts[following]
    return put(story, place, (name, replace(asked, offset=following, ts=ts)))


@mutation("I18")
def look_up_that_finds_nothing(story: Story, dice: random.Random) -> Story:
    _, _, event = one_of(story, dice, ev.ProduceOk)
    t = end(story)
    return behind(story, "reader-1", ev.LookUpOk(event.tp, 0, -1, t + 1, t + 2))


# --- brokers ---------------------------------------------------------------------------------------


@mutation("I11", on_the_way=True)
def falling_high_watermark(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.HighWatermark)
    return put(story, place, (name, event), (name, replace(event, value=event.value - 1)))


@mutation("I12", on_the_way=True)
def two_leaders_in_one_epoch(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.BecomeLeader)
    other = dice.choice([each for each in "123" if each != name])
    return put(story, place, (name, event), (other, event))


@mutation("I12", on_the_way=True)
def leader_epoch_that_goes_back(story: Story, dice: random.Random) -> Story:
    _, name, event = one_of(story, dice, ev.BecomeLeader, lambda each: each.epoch > 1)
    return behind(story, name, ev.BecomeFollower(end(story), event.tp, 0, 1))


@mutation("I12", on_the_way=True)
def two_controllers_in_one_epoch(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.Controller)
    other = dice.choice([each for each in "123" if each != name])
    return put(story, place, (name, event), (other, event))


@mutation("I12", on_the_way=True)
def isr_change_without_version(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.IsrChange)
    return put(story, place, (name, replace(event, partition_epoch=-1)))


@mutation("I12", on_the_way=True)
def two_isr_changes_of_one_version(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.IsrChange)
    other = dice.choice([each for each in "123" if each != name])
    return put(story, place, (name, event), (other, event))


@mutation("I12", on_the_way=True)
def isr_change_by_a_deposed_leader(story: Story, dice: random.Random) -> Story:
    _, name, event = one_of(story, dice, ev.IsrChange, lambda each: each.epoch > 1)
    late = replace(event, t=end(story), epoch=event.epoch - 1, partition_epoch=10_000)
    return behind(story, dice.choice([each for each in "123" if each != name]), late)


@mutation("I13")
def lost_what_a_deposed_leader_acknowledged(story: Story, dice: random.Random) -> Story:
    last = {tp: max(log.leader_epochs) for tp, (log, *_) in story.ending.logs.items()}
    _, _, event = one_of(story, dice, ev.Ack, lambda each: each.epoch < last[each.tp])
    return logs(story, lambda log: cut(log, event.last), event.tp)


@mutation("I13")
def replaced_what_a_deposed_leader_acknowledged(story: Story, dice: random.Random) -> Story:
    last = {tp: max(log.leader_epochs) for tp, (log, *_) in story.ending.logs.items()}
    _, _, event = one_of(story, dice, ev.ProduceOk, lambda each: each.epochs[0] < last[each.tp])
    offset = event.offsets[-1]

    def change(log: FinalLog) -> FinalLog:
        epochs = [*log.leader_epochs[:offset], *[last[log.tp]] * (log.leo - offset)]
        return replace(log, leader_epochs=epochs)

    return logs(story, change, event.tp)


@mutation("I14", on_the_way=True)
def acknowledged_with_too_small_isr(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.Ack)
    return put(story, place, (name, replace(event, isr=[int(name)])))


@mutation("I14", on_the_way=True)
def acknowledged_before_a_pending_member_had_it(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.Ack)
    return put(story, place, (name, replace(event, leos={**event.leos, event.pending[0]: event.last})))


@mutation("I14", on_the_way=True)
def acknowledged_by_a_leader_outside_the_isr(story: Story, dice: random.Random) -> Story:
    place, _, event = one_of(story, dice, ev.Ack)
    return put(story, place, (str(event.pending[0]), event))


@mutation("I15")
def replica_that_differs(story: Story, dice: random.Random) -> Story:
    tp = dice.choice([tp for tp, (log, *_) in story.ending.logs.items() if log.batches])

    def change(log: FinalLog) -> FinalLog:
        place = dice.randrange(len(log.batches)) if log.broker == "2" else -1
        batches = [each._replace(crc=each.crc ^ 1) if at == place else each for at, each in enumerate(log.batches)]
        return replace(log, batches=batches)

    return logs(story, change, tp)


@mutation("I15")
def replica_that_is_longer(story: Story, dice: random.Random) -> Story:
    _, _, event = one_of(story, dice, ev.ProduceUnknown)
    return logs(story, lambda log: longer(log, event.ids[0]) if log.broker == "3" else log, event.tp)


@mutation("I16")
def epochs_that_fall_in_a_log(story: Story, dice: random.Random) -> Story:
    def change(log: FinalLog) -> FinalLog:
        return replace(log, leader_epochs=[*log.leader_epochs[:-1], 0]) if log.broker in ("1", READ) else log

    return logs(story, change, dice.choice([tp for tp, (log, *_) in story.ending.logs.items() if log.leo > 1]))


@mutation("I16")
def checkpoint_that_its_log_contradicts(story: Story, dice: random.Random) -> Story:
    def change(log: FinalLog) -> FinalLog:
        if log.broker != "2" or not log.epochs:
            return log
        return replace(log, epochs=[EpochStart(0, 0), *log.epochs[1:]])

    return logs(story, change, dice.choice(list(story.ending.logs)))


# --- groups ----------------------------------------------------------------------------------------


def _later(story: Story, event: ev.CommitOk, offset: int) -> Story:
    t = end(story)
    return behind(story, "reader-1", ev.CommittedOk(event.group, event.tp, offset, t + 1, t + 2))


@mutation("I17", on_the_way=True)
def committed_offset_that_goes_back(story: Story, dice: random.Random) -> Story:
    _, _, event = one_of(story, dice, ev.CommitOk)
    return _later(story, event, event.offset - 1)


@mutation("I17", on_the_way=True)
def committed_minus_one(story: Story, dice: random.Random) -> Story:
    _, _, event = one_of(story, dice, ev.CommitOk)
    return _later(story, event, -1)


@mutation("I17")
def committed_by_nobody(story: Story, dice: random.Random) -> Story:
    _, _, event = one_of(story, dice, ev.CommitOk)
    return _later(story, event, 1_000_000)


@mutation("I17", on_the_way=True)
def stale_generation_accepted(story: Story, dice: random.Random) -> Story:
    _, name, event = one_of(story, dice, ev.CommitOk)
    t = end(story)
    stale = replace(event, offset=1_000_000, generation=1, t0=t + 1, t1=t + 2)
    return behind(story, name, stale)


@mutation("I17", on_the_way=True)
def two_owners(story: Story, dice: random.Random) -> Story:
    place, _, event = one_of(story, dice, ev.Assigned)
    return put(story, place + 1, ("member", replace(event, member="m3")), instead=False)


# --- time ------------------------------------------------------------------------------------------


@mutation("I19")
def gap_without_produces(story: Story, dice: random.Random) -> Story:
    (window,) = story.ending.windows
    return replace(story, ending=Ending(story.ending.logs, [replace(window, most_gap_ns=MS)]))


@mutation("I19")
def fault_that_nothing_works_under(story: Story, dice: random.Random) -> Story:
    (window,) = story.ending.windows
    return replace(story, ending=Ending(story.ending.logs, [replace(window, least_operations=10_000)]))


@mutation("I19")
def replicas_that_take_too_long_to_come_back(story: Story, dice: random.Random) -> Story:
    (window,) = story.ending.windows
    late = replace(window, whole=window.healed + 11 * MS, most_healing_ns=10 * MS)
    return replace(story, ending=Ending(story.ending.logs, [late]))


@mutation("I20", on_the_way=True)
def request_replayed_after_its_deadline(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.Processed)
    return put(story, place, (name, replace(event, deadline=event.t - 1)))


@mutation("I20", on_the_way=True)
def request_of_a_lower_epoch(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.Processed)
    return put(story, place, (name, replace(event, epoch=event.known - 1)))


@mutation("I20", on_the_way=True)
def appended_in_an_epoch_that_is_over(story: Story, dice: random.Random) -> Story:
    _, name, event = one_of(story, dice, ev.Append)
    told = behind(story, name, ev.BecomeFollower(end(story), event.tp, 1000, 1))
    return behind(told, name, replace(event, t=end(story) + 1))


@mutation("I21", on_the_way=True)
def unforeseen_failure(story: Story, dice: random.Random) -> Story:
    return behind(story, "1", ev.Traceback(end(story), "Traceback (most recent call last):\nKeyError: 3"))


@mutation("I21", on_the_way=True)
def unknown_server_error(story: Story, dice: random.Random) -> Story:
    return behind(story, "1", ev.Error(end(story), "Produce", -1))


@mutation("I21", on_the_way=True)
def leaked_descriptors(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.Resources, lambda each: each.phase == "healed")
    return put(story, place, (name, replace(event, fds=event.fds + 9)))


@mutation("I22")
def hanging_operation(story: Story, dice: random.Random) -> Story:
    place, _, _ = one_of(story, dice, ev.ProduceUnknown)
    return put(story, place)


@mutation("I22", on_the_way=True)
def operation_that_ends_too_late(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.ProduceUnknown)
    return put(story, place, (name, replace(event, t=[each + (TIMEOUT_MS + 1000) * MS for each in event.t])))


@mutation("I22", on_the_way=True)
def error_that_nothing_documents(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, ev.ProduceFailed)
    return put(story, place, (name, replace(event, errors=["KEY_ERROR"] * len(event.ids))))
