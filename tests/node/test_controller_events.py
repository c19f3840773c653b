"""The controller's events run one after the other, and let other tasks run at each pause."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cluster.controller.effects import Effect, Pause
from cluster.state import PartitionState, TopicAssignment, VersionedState
from node.controller.outbox import StateBatch
from tests.node.test_controller_failure import TP, answered, new_term, registration
from tidelog.errors import NotControllerError, NotLeaderOrFollowerError
from tidelog.protocol.control_messages import PartitionStateMessage


def event(name: str, pauses: int, seen: list[str]) -> Iterator[Effect]:
    """Note in `seen` when the event begins, goes on after a pause, and ends."""
    for step in range(pauses):
        seen.append(f"{name}{step}")
        yield Pause()
    seen.append(f"{name} ends")


async def test_event_without_a_pause_is_over_at_once() -> None:
    seen: list[str] = []
    assert new_term().perform(event("a", 0, seen)).done()
    assert seen == ["a ends"]


async def test_next_event_begins_when_the_one_before_has_ended() -> None:
    term, seen = new_term(), list[str]()
    first, second = term.perform(event("a", 2, seen)), term.perform(event("b", 1, seen))
    assert seen == ["a0"] and not first.done()
    await first
    assert seen[:3] == ["a0", "a1", "a ends"]
    await second
    assert seen[3:] == ["b0", "b ends"]


async def test_other_tasks_run_at_each_pause() -> None:
    term, seen = new_term(), list[str]()

    async def other() -> None:
        for turn in range(2):
            seen.append(f"other {turn}")
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await term.perform(event("a", 2, seen))
    await task
    assert seen == ["a0", "other 0", "a1", "other 1", "a ends"]


async def test_waiting_for_a_condition_sees_the_end_of_an_event_with_pauses() -> None:
    term, seen = new_term(), list[str]()
    term.perform(event("a", 3, seen))
    await asyncio.wait_for(term.wait_until(lambda: seen[-1] == "a ends", 2**40), 30)
    assert seen[-1] == "a ends"


async def test_event_goes_on_if_the_task_that_waits_for_it_is_cancelled() -> None:
    term, seen = new_term(), list[str]()

    async def wait() -> None:
        await term.perform(event("a", 3, seen))

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await term.perform(event("b", 0, seen))
    assert seen == ["a0", "a1", "a2", "a ends", "b ends"] and waiting.cancelled()


async def test_end_of_the_term_ends_events_and_frees_those_that_wait() -> None:
    term, seen = new_term(), list[str]()
    first, second = term.perform(event("a", 2, seen)), term.perform(event("b", 0, seen))
    term.end("the test ends it")
    await asyncio.gather(first, second)
    await asyncio.sleep(0)
    assert term.perform(event("c", 0, seen)).done()
    assert seen == ["a0"]


@pytest.mark.parametrize("pauses", [0, 1])
async def test_event_that_fails_ends_the_term(pauses: int) -> None:
    term, seen = new_term(), list[str]()

    def failing() -> Iterator[Effect]:
        yield from event("a", pauses, seen)
        raise RuntimeError("a defect")

    await term.perform(failing())
    assert term.ended


@pytest.mark.parametrize("registers_again", [False, True])
async def test_answer_of_an_ended_registration_has_no_effect(registers_again: bool) -> None:
    term, seen = new_term(), list[str]()
    leader = replace(registration(2, "h", 2), epoch=7)
    state = VersionedState(PartitionState(2, 5, (2,), 1), 8)
    list(term.controller.begin({2: leader}, {"t": TopicAssignment("t", "id", {0: (2,)})}, {TP: state}))
    term.perform(event("a", 1, seen))
    batch = StateBatch({TP: PartitionStateMessage("t", 0, 1, 2, 5, (2,), 8, (2,))})
    term.on_answer(leader, batch, answered(NotLeaderOrFollowerError.code), 0)
    if registers_again:
        term.controller.context.brokers[2] = replace(leader, epoch=9)
    await term.perform(event("b", 0, seen))
    assert term.controller.election_in_progress(TP) != registers_again
    term.end("the test is over")


async def test_lists_of_partitions_are_refused_while_topics_are_read() -> None:
    with pytest.raises(NotControllerError, match="still reading the topics"):
        new_term().raise_if_loading()
