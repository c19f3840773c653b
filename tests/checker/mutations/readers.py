"""Mutations of the records, end offsets and times that readers receive."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.checker.little_log import Case
from tests.checker.mutations.mutation import mutation
from tests.checker.mutations.spoiling import behind, end, one_of, put
from tidelog.history.operations import LatestOk, LookUpOk, ProduceOk, ProduceUnknown, Read, ReadFailed


@mutation("I7", on_the_way=True)
def gap_in_what_is_read(case: Case, rng: random.Random) -> Case:
    place, name, read = one_of(case, rng, Read, lambda each: len(each.ids) > 2)
    columns = {key: [getattr(read, key)[0], *getattr(read, key)[2:]] for key in ("offsets", "ids", "ts")}
    return put(case, place, (name, replace(read, **columns)))


@mutation("I7", on_the_way=True)
def repeated_for_a_reader(case: Case, rng: random.Random) -> Case:
    place, name, read = one_of(case, rng, Read, lambda each: len(each.ids) > 0)
    return put(case, place, (name, read), (name, read))


@mutation("I8", on_the_way=True)
def end_that_goes_back(case: Case, rng: random.Random) -> Case:
    _, name, event = one_of(case, rng, LatestOk, lambda each: each.offset > 1)
    t = end(case)
    return behind(case, name, replace(event, offset=event.offset - 1, t0=t + 1, t1=t + 2))


@mutation("I8", on_the_way=True)
def end_before_what_was_acknowledged(case: Case, rng: random.Random) -> Case:
    place, _, event = one_of(case, rng, ProduceOk)
    latest = LatestOk(event.tp, event.offsets[-1], event.t[0] + 1, event.t[0] + 2)
    return put(case, place + 1, ("reader-1", latest), instead=False)


@mutation("I8", on_the_way=True)
def acknowledged_offset_out_of_range(case: Case, rng: random.Random) -> Case:
    _, _, event = one_of(case, rng, ProduceOk)
    t = end(case)
    return behind(case, "reader-1", ReadFailed(event.tp, "OFFSET_OUT_OF_RANGE", t + 1, t + 2, 1, event.offsets[0]))


@mutation("I9")
def dirty_read(case: Case, rng: random.Random) -> Case:
    """Let a reader receive records of a replaced leader that no other replica had."""
    _, _, event = one_of(case, rng, ProduceUnknown)
    tp = event.tp
    leo = case.ending.logs[tp][0].leo
    t = end(case)
    return behind(case, "reader-1", Read(tp, 999, leo + 1, t + 1, t + 2, [leo], [event.ids[0]], [0]))


@mutation("I9")
def altered_timestamp(case: Case, rng: random.Random) -> Case:
    place, name, read = one_of(case, rng, Read, lambda each: len(each.ids) > 0)
    return put(case, place, (name, replace(read, ts=[read.ts[0] + 1, *read.ts[1:]])))


@mutation("I10", on_the_way=True)
def read_above_the_high_watermark(case: Case, rng: random.Random) -> Case:
    place, name, read = one_of(case, rng, Read, lambda each: len(each.ids) > 0)
    return put(case, place, (name, replace(read, hw=read.offsets[-1])))


@mutation("I10", on_the_way=True)
def high_watermark_that_nobody_had(case: Case, rng: random.Random) -> Case:
    place, name, read = one_of(case, rng, Read)
    return put(case, place, (name, replace(read, hw=10_000)))


@mutation("I18")
def wrong_look_up(case: Case, rng: random.Random) -> Case:
    def has_a_next(each: LookUpOk) -> bool:
        log = case.ending.logs[each.tp][0]
        return 0 <= each.offset < log.leo - 1

    place, name, asked = one_of(case, rng, LookUpOk, has_a_next)
    following = asked.offset + 1
    ts = case.ending.logs[asked.tp][0].ts[following]
    return put(case, place, (name, replace(asked, offset=following, ts=ts)))


@mutation("I18")
def look_up_that_finds_nothing(case: Case, rng: random.Random) -> Case:
    _, _, event = one_of(case, rng, ProduceOk)
    t = end(case)
    return behind(case, "reader-1", LookUpOk(event.tp, 0, -1, t + 1, t + 2))
