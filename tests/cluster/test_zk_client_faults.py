"""Every operation of `ZkClient` under every fault of its table, and under pairs of faults at every request.

The rules that hold for all of them:
    - a success is returned only if the effect took place, exactly once unless a repetition is harmless;
    - a refusal is a typed error, and the operation has changed nothing;
    - an unknown outcome raises OutcomeUnknownError, or is looked up and returned as it is;
    - no write changes a node that has changed since the operation read it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterator, Mapping
from itertools import product
from typing import Any

import pytest

from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.state_znodes import StateZnodes
from cluster.zookeeper.store import OutcomeUnknownError, SessionExpiredError
from cluster.zookeeper.topic_configs import TopicConfigs
from cluster.zookeeper.topic_znodes import TopicZnodes
from cluster.zookeeper.zookeeper_offsets import ZooKeeperOffsets
from tests.cluster.faulty_store import Loss
from tests.cluster.zk_client_stage import Stage
from tests.cluster.zk_client_table import READS, WRITES, Cell, Outcome, ReadRow, Row
from tests.virtual_time import on_virtual_time
from tidelog.errors import TidelogError

NEAR = 3

every_write = pytest.mark.parametrize("row", WRITES, ids=lambda row: row.name)
every_read = pytest.mark.parametrize("row", READS, ids=lambda row: row.operation)


async def ready(row: Row | ReadRow) -> Stage:
    stage = Stage()
    if getattr(row, "furnished", True):
        await stage.set_up()
    if row.arrange is not None:
        await row.arrange(stage)
    return stage


async def run(row: Row | ReadRow, stage: Stage) -> Any:
    """Return the operation's result or error."""
    stage.store.watch_writes(stage.known())
    stage.store.owner = getattr(row, "owner", "")
    try:
        return await row.call(stage)
    except TidelogError as error:
        return error


def written(row: Row, stage: Stage) -> int:
    return stage.effects_on(row.effect)


def assert_nothing_was_written_blindly(row: Row, stage: Stage) -> None:
    blind = [each for each in stage.store.blind if each.operation.path not in row.unguarded]
    assert not blind, f"written over a version that the operation has not read: {blind}"
    assert not stage.store.orphans, f"written although {row.owner} is gone: {stage.store.orphans}"


async def check(row: Row, stage: Stage, result: Any, allowed: Outcome) -> None:
    effects = written(row, stage)
    assert allowed.allows(stage, result, effects), f"{result!r} and {effects} effects, not {allowed}"
    assert_nothing_was_written_blindly(row, stage)
    if row.holds is not None and not isinstance(result, Exception):
        await row.holds(stage, result)


async def requests_that_write(row: Row) -> list[int]:
    """Return the numbers of the requests by which the effect takes place without faults."""
    stage = await ready(row)
    stage.store.watch_writes(stage.known())
    numbers: list[int] = []
    multi, create, put, delete = stage.inner.multi, stage.inner.create, stage.inner.set, stage.inner.delete

    def noting(request: Any) -> Any:
        async def noted(*args: Any, **kwargs: Any) -> Any:
            before = stage.store.sent - 1
            answer = await request(*args, **kwargs)
            numbers.append(before)
            return answer

        return noted

    for name, request in (("multi", multi), ("create", create), ("set", put), ("delete", delete)):
        setattr(stage.inner, name, noting(request))
    await row.call(stage)
    return numbers


# --- the table -------------------------------------------------------------------------------------------------------


def operations(*kinds: type) -> set[str]:
    """Return the public operations of these classes, by the class that defines each."""
    return {
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, member in vars(kind).items()
        if not name.startswith("_") and inspect.iscoroutinefunction(member)
    }


def test_every_operation_of_the_coordination_layer_has_a_row() -> None:
    rows = {row.operation for row in (*WRITES, *READS)}
    assert rows == operations(ZkClient, StateZnodes, TopicZnodes, TopicConfigs, ZooKeeperOffsets)


def test_every_write_says_why_a_column_does_not_apply() -> None:
    columns = ("changed", "anew", "deposed", "expired", "vanished")
    cells = [getattr(row, column) for row in WRITES for column in columns]
    assert all(isinstance(cell, Cell) or (isinstance(cell, str) and cell) for cell in cells)


# --- one fault -------------------------------------------------------------------------------------------------------


@every_write
@on_virtual_time
async def test_operation_without_faults_has_its_effect_once(row: Row) -> None:
    stage = await ready(row)
    await check(row, stage, await run(row, stage), row.fair)


@every_write
@pytest.mark.parametrize("loss", Loss, ids=lambda loss: loss.value)
@on_virtual_time
async def test_lost_write_ends_as_the_table_says(row: Row, loss: Loss) -> None:
    stage = await ready(row)
    last = max(await requests_that_write(row), default=0)
    stage.store.losses = {last: loss}
    await check(row, stage, await run(row, stage), row.request_lost if loss is Loss.REQUEST else row.answer_lost)


@pytest.mark.parametrize(
    ("row", "column"),
    [pytest.param(row, column, id=f"{row.name}: {column}") for row in WRITES for column in row.rivals],
)
@on_virtual_time
async def test_operation_after_a_rival_ends_as_the_table_says(row: Row, column: str) -> None:
    stage = await ready(row)
    cell = row.rivals[column]
    stage.store.rivals = {0: lambda: cell.rival(stage)}
    await check(row, stage, await run(row, stage), cell.outcome)


# --- pairs of faults -------------------------------------------------------------------------------------------------


def judged(row: Row, cell: Cell | None, losses: Mapping[int, Loss], stage: Stage, result: Any) -> str:
    """Return the error in the outcome of a run with several faults, or ""."""
    effects = written(row, stage)
    if effects > row.most:
        return f"the effect took place {effects} times"
    if type(result) is OutcomeUnknownError:
        return ""
    answers_lost = Loss.ANSWER in losses.values()
    allowed = [row.fair, *row.also]
    if cell is not None:
        allowed.append(cell.outcome)
    if Loss.REQUEST in losses.values():
        allowed.append(row.request_lost)
    if answers_lost:
        allowed.append(row.answer_lost)
    for outcome in allowed:
        if outcome.fits(stage, result):
            # An effect whose answer was lost may have been overwritten before the operation looked again.
            most = row.most if row.most > 1 else max(outcome.effects, int(answers_lost))
            if outcome.effects <= effects <= most:
                return ""
    return f"{result!r} and {effects} effects are none of {allowed}"


def pairs(requests: int, rivals: Mapping[str, Cell]) -> Iterator[tuple[dict[int, Loss], str, int]]:
    """Yield losses, a rival's column ("" for none) and the request before which the rival acts.

    Two faults meet only if they are near each other: at most as many requests lie between them as one attempt has.
    """
    positions = range(requests + 3)
    singles: list[dict[int, Loss]] = [{number: loss} for number, loss in product(positions, Loss)]
    for losses in [{}, *singles]:
        for column, position in product(rivals, positions):
            if all(abs(number - position) <= NEAR for number in losses):
                yield losses, column, position
    for first, second in product(singles, singles):
        if max(first) < max(second) <= max(first) + NEAR:
            yield first | second, "", 0


@every_write
@on_virtual_time
async def test_no_pair_of_faults_makes_an_operation_lie(row: Row) -> None:
    stage = await ready(row)
    await run(row, stage)
    for losses, column, position in pairs(stage.store.sent, row.rivals):
        stage = await ready(row)
        cell = row.rivals.get(column)
        stage.store.losses = losses
        if cell is not None:
            stage.store.rivals = {position: rival_of(cell, stage)}
        result = await run(row, stage)
        where = f"{row.name}, {losses}, {column} before request {position}"
        assert judged(row, cell, losses, stage, result) == "", where
        assert_nothing_was_written_blindly(row, stage)
        if row.holds is not None and not isinstance(result, Exception):
            await row.holds(stage, result)


def rival_of(cell: Cell, stage: Stage) -> Any:
    def act() -> Awaitable[object]:
        return cell.rival(stage)

    return act


@every_write
@on_virtual_time
async def test_operation_without_zookeeper_ends_in_time_with_unknown_outcome(row: Row) -> None:
    stage = await ready(row)
    stage.store.losses = dict.fromkeys(range(1000), Loss.REQUEST)
    result = await run(row, stage)
    assert type(result) is OutcomeUnknownError or row.request_lost.fits(stage, result)
    assert (result is None or isinstance(result, OutcomeUnknownError)) and written(row, stage) == 0


# --- the session -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [*WRITES, *READS], ids=lambda row: getattr(row, "name", row.operation))
@on_virtual_time
async def test_operation_of_a_session_that_is_over_for_good_raises_that(row: Row | ReadRow) -> None:
    stage = await ready(row)
    await stage.inner.close()
    assert type(await run(row, stage)) is SessionExpiredError
    assert stage.store.applied == []


# --- reads -----------------------------------------------------------------------------------------------------------


def reads(stage: Stage, expected: Any, result: Any) -> bool:
    return Outcome(expected, 0).fits(stage, result)


@every_read
@on_virtual_time
async def test_read_returns_the_current_state_even_if_any_answer_is_lost(row: ReadRow) -> None:
    stage = await ready(row)
    assert reads(stage, row.before, await run(row, stage))
    for number in range(stage.store.sent + 1):
        stage = await ready(row)
        stage.store.losses = {number: Loss.ANSWER, number + 1: Loss.REQUEST}
        assert reads(stage, row.before, await run(row, stage)), f"request {number}"
        assert stage.store.applied == []


@pytest.mark.parametrize(
    ("row", "column"),
    [pytest.param(row, column, id=f"{row.operation}: {column}") for row in READS for column in row.rivals],
)
@on_virtual_time
async def test_read_beside_a_rival_returns_the_state_before_or_after(row: ReadRow, column: str) -> None:
    rival, after = row.rivals[column]
    stage = await ready(row)
    await run(row, stage)
    for position in range(stage.store.sent):
        stage = await ready(row)
        before = row.before
        stage.store.rivals = {position: rival_of(Cell(rival, Outcome(None, 0)), stage)}
        result = await run(row, stage)
        # Some reads are concurrent, so that one may return the state after the rival, and another the state before.
        allowed = [after, *row.between] if position == 0 else [before, after, *row.between]
        assert any(reads(stage, each, result) for each in allowed), f"{result!r} at request {position}"
        assert stage.store.applied == []


@every_read
@on_virtual_time
async def test_read_without_zookeeper_ends_in_time(row: ReadRow) -> None:
    stage = await ready(row)
    stage.store.losses = dict.fromkeys(range(1000), Loss.REQUEST)
    assert type(await run(row, stage)) is OutcomeUnknownError
