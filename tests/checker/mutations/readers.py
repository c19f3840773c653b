"""Mutations of the records, end offsets and times that readers receive."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.checker.little_log import Story
from tests.checker.mutations.mutation import mutation
from tests.checker.mutations.spoiling import behind, end, one_of, put
from tidelog.history.operations import LatestOk, LookUpOk, ProduceOk, ProduceUnknown, Read, ReadFailed


@mutation("I7", on_the_way=True)
def gap_in_what_is_read(story: Story, rng: random.Random) -> Story:
    place, name, read = one_of(story, rng, Read, lambda each: len(each.ids) > 2)
    columns = {key: [getattr(read, key)[0], *getattr(read, key)[2:]] for key in ("offsets", "ids", "ts")}
    return put(story, place, (name, replace(read, **columns)))


@mutation("I7", on_the_way=True)
def repeated_for_a_reader(story: Story, rng: random.Random) -> Story:
    place, name, read = one_of(story, rng, Read, lambda each: len(each.ids) > 0)
    return put(story, place, (name, read), (name, read))


@mutation("I8", on_the_way=True)
def end_that_goes_back(story: Story, rng: random.Random) -> Story:
    _, name, event = one_of(story, rng, LatestOk, lambda each: each.offset > 1)
    t = end(story)
    return behind(story, name, replace(event, offset=event.offset - 1, t0=t + 1, t1=t + 2))


@mutation("I8", on_the_way=True)
def end_before_what_was_acknowledged(story: Story, rng: random.Random) -> Story:
    place, _, event = one_of(story, rng, ProduceOk)
    latest = LatestOk(event.tp, event.offsets[-1], event.t[0] + 1, event.t[0] + 2)
    return put(story, place + 1, ("reader-1", latest), instead=False)


@mutation("I8", on_the_way=True)
def acknowledged_offset_out_of_range(story: Story, rng: random.Random) -> Story:
    _, _, event = one_of(story, rng, ProduceOk)
    t = end(story)
    return behind(story, "reader-1", ReadFailed(event.tp, "OFFSET_OUT_OF_RANGE", t + 1, t + 2, 1, event.offsets[0]))


@mutation("I9")
def dirty_read(story: Story, rng: random.Random) -> Story:
    """Let a reader receive records of a replaced leader that no other replica had."""
    _, _, event = one_of(story, rng, ProduceUnknown)
    tp = event.tp
    leo = story.ending.logs[tp][0].leo
    t = end(story)
    return behind(story, "reader-1", Read(tp, 999, leo + 1, t + 1, t + 2, [leo], [event.ids[0]], [0]))


@mutation("I9")
def altered_timestamp(story: Story, rng: random.Random) -> Story:
    place, name, read = one_of(story, rng, Read, lambda each: len(each.ids) > 0)
    return put(story, place, (name, replace(read, ts=[read.ts[0] + 1, *read.ts[1:]])))


@mutation("I10", on_the_way=True)
def read_above_the_high_watermark(story: Story, rng: random.Random) -> Story:
    place, name, read = one_of(story, rng, Read, lambda each: len(each.ids) > 0)
    return put(story, place, (name, replace(read, hw=read.offsets[-1])))


@mutation("I10", on_the_way=True)
def high_watermark_that_nobody_had(story: Story, rng: random.Random) -> Story:
    place, name, read = one_of(story, rng, Read)
    return put(story, place, (name, replace(read, hw=10_000)))


@mutation("I18")
def wrong_look_up(story: Story, rng: random.Random) -> Story:
    def has_a_next(each: LookUpOk) -> bool:
        log = story.ending.logs[each.tp][0]
        return 0 <= each.offset < log.leo - 1

    place, name, asked = one_of(story, rng, LookUpOk, has_a_next)
    following = asked.offset + 1
    ts = story.ending.logs[asked.tp][0].ts[following]
    return put(story, place, (name, replace(asked, offset=following, ts=ts)))


@mutation("I18")
def look_up_that_finds_nothing(story: Story, rng: random.Random) -> Story:
    _, _, event = one_of(story, rng, ProduceOk)
    t = end(story)
    return behind(story, "reader-1", LookUpOk(event.tp, 0, -1, t + 1, t + 2))
