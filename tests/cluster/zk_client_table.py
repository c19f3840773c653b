"""The table: each operation of `ZkClient`, and its required outcome under each fault.

A row names one operation, the node on which its effect is, and one outcome per column:

    fair          no fault
    request_lost  the connection ends before the server has applied the write
    answer_lost   the connection ends after the server has applied the write
    changed       another client has changed the node meanwhile, so that its version differs
    anew          the node was deleted and made again, so that its czxid differs
    deposed       another controller was elected meanwhile
    expired       the session of the operation is over
    vanished      the node is gone

The outcome of a rival's column is the one that is required if the rival acts before the operation begins. A column that
cannot apply says why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.state import (
    BrokerRegistration,
    ControllerLease,
    PartitionState,
    TopicAssignment,
    VersionedState,
    WriteState,
)
from cluster.zookeeper import znodes
from cluster.zookeeper.store import OutcomeUnknownError
from cluster.zookeeper.write_conflicts import AssignmentConflict, BrokerIdTaken, ControllerFenced, StateConflict
from tests.cluster.zk_client_stage import BROKER, GROUP, MOVED, SHORT, STATE, TOPIC, TP, Stage
from tidelog.model import TopicPartition

NEW = PartitionState(1, 1, (1,), 1)
SECOND = TopicPartition("t", 1)
BESIDE = replace(TOPIC, topic="u", topic_id="BBBBBBBBBBBBBBBBBBBBBQ")
#: Any result of an operation.
ANYTHING = object()

Rival = Callable[[Stage], Awaitable[object]]
Expected = Callable[[Stage, Any], bool]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A result, and how often the effect must have taken place.

    result   a value, an exception's type, or a function that judges the result
    effects  transactions that have changed the row's node
    """

    result: Any
    effects: int

    def allows(self, stage: Stage, result: Any, effects: int) -> bool:
        return self.fits(stage, result) and effects == self.effects

    def fits(self, stage: Stage, result: Any) -> bool:
        """Return whether this result is the required one."""
        if self.result is ANYTHING:
            return not isinstance(result, Exception)
        if isinstance(self.result, type):
            return type(result) is self.result
        if callable(self.result):
            return not isinstance(result, Exception) and bool(self.result(stage, result))
        return bool(result == self.result)


@dataclass(frozen=True, slots=True)
class Cell:
    """A rival's change, and the required outcome of the operation after it."""

    rival: Rival
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One operation that writes.

    arrange    additional set-up of the stage
    also       outcomes that are right only if a rival acts in the middle of the operation
    most       the greatest number of effects; more than 1 only if a repetition is harmless
    unguarded  nodes that the operation may write without having seen them, each with its reason
    owner      a node without which the effect must not take place
    holds      asserts what must be true after a success
    """

    operation: str
    case: str = ""
    arrange: Callable[[Stage], Awaitable[object]] | None = None
    furnished: bool = True
    call: Callable[[Stage], Awaitable[Any]]
    effect: str
    fair: Outcome
    request_lost: Outcome
    answer_lost: Outcome
    changed: Cell | str
    anew: Cell | str
    deposed: Cell | str
    expired: Cell | str
    vanished: Cell | str
    also: tuple[Outcome, ...] = ()
    most: int = 1
    unguarded: dict[str, str] = field(default_factory=dict)
    owner: str = ""
    holds: Callable[[Stage, Any], Awaitable[None]] | None = None

    @property
    def name(self) -> str:
        return f"{self.operation} {self.case}".strip()

    @property
    def rivals(self) -> dict[str, Cell]:
        """Return the columns in which a rival acts."""
        columns = {name: getattr(self, name) for name in ("changed", "anew", "deposed", "expired", "vanished")}
        return {name: cell for name, cell in columns.items() if isinstance(cell, Cell)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRow:
    """One operation that reads: its result before and after each rival.

    It writes nothing, and a lost answer does not change the result.
    """

    operation: str
    arrange: Callable[[Stage], Awaitable[object]] | None = None
    call: Callable[[Stage], Awaitable[Any]]
    before: Any
    rivals: dict[str, tuple[Rival, Any]]
    between: tuple[Any, ...] = ()


def done(result: Any = None, effects: int = 1) -> Outcome:
    """The effect took place once."""
    return Outcome(result, effects)


def not_done(result: Any = None) -> Outcome:
    """The operation refuses, or has nothing to do, and changes nothing."""
    return Outcome(result, 0)


UNKNOWN_AND_NOT_DONE = Outcome(OutcomeUnknownError, 0)
UNKNOWN_AND_DONE = Outcome(OutcomeUnknownError, 1)
DEPOSED = Cell(Stage.depose, not_done(ControllerFenced))
ONE_WRITER = "the controller alone makes such nodes, and has one operation of a topic at a time"
NEVER_DELETED = "no broker deletes a committed offset"


def counters(*paths: str) -> dict[str, str]:
    """Nodes of which only the version counts, so that no write to them can be lost."""
    return dict.fromkeys(paths, "its version counts something")


def expired(outcome: Outcome) -> Cell:
    return Cell(Stage.expire, outcome)


# --- results that depend on the stage --------------------------------------------------------------------------------


def standing_cluster_id(stage: Stage, result: str) -> bool:
    data = stage.data(znodes.CLUSTER_ID)
    return data is not None and result == znodes.decode_cluster_id(data)


def own_registration(expected: BrokerRegistration) -> Expected:
    """Return a function that judges whether the registration is the operation's own, with the requested content."""

    def choose_recovery_leader(stage: Stage, result: int) -> bool:
        stat, found = stage.look(znodes.broker_path(3)), stage.registration()
        mine = stat is not None and (stat.czxid, stat.owner) == (result, stage.inner.session_id)
        return mine and found == replace(expected, epoch=result)

    return choose_recovery_leader


def own_lease(stage: Stage, result: ControllerLease | None) -> bool:
    stat, fence = stage.look(znodes.CONTROLLER), stage.look(znodes.CONTROLLER_EPOCH)
    if result is None or stat is None or fence is None:
        return False
    expected = (3, result.epoch_version, stage.lease.epoch + 1, stat.owner)
    return expected == (result.controller_id, fence.version, result.epoch, result.owner)


def written_but_for(*refused: int) -> Expected:
    """Return a function that judges whether the states of TP and SECOND were written, except those at these indices."""

    def judge(stage: Stage, result: list[int | StateConflict]) -> bool:
        expected = [-1 if index in refused else version for index, version in enumerate([1, 0])]
        return [-1 if isinstance(each, StateConflict) else each for each in result] == expected

    return judge


def written_alone(judged: int) -> tuple[Outcome, ...]:
    """Return the outcomes if the common write was lost, and a rival acts between the two states that are written alone.

    judged   the index of the state in which the row counts its effects
    """
    fenced = Outcome(ControllerFenced, 1)
    return fenced, *(Outcome(written_but_for(refused), int(judged != refused)) for refused in (0, 1))


def read_as_written(stage: Stage, result: TopicAssignment) -> bool:
    data, stat = stage.data(znodes.topic_path("t")), stage.look(znodes.topic_path("t"))
    return (data, stat and stat.version) == (znodes.encode_topic(result), result.version)


# --- what rivals and rows need ----------------------------------------------------------------------------------------


async def another_id(stage: Stage) -> None:
    await stage.other.cluster_id()


async def another_block(stage: Stage) -> None:
    stage.notes["rival"] = await stage.other.next_producer_id_block(2)


async def one_block_taken(stage: Stage) -> None:
    await stage.other.next_producer_id_block(2)


async def no_shared_ids(stage: Stage, block: range) -> None:
    later = await stage.other.next_producer_id_block(2)
    given = [block, later, *([stage.notes["rival"]] if "rival" in stage.notes else [])]
    ids = [number for each in given for number in each]
    assert len(ids) == len(set(ids)), f"two brokers got the same producer ids: {given}"


async def own_former_registration(stage: Stage) -> None:
    """An earlier process of broker 3 has registered, and its session is still live."""
    await stage.register(BROKER)
    stage.notes["session"] = stage.owner.store.session_id


async def own_registration_of_this_session(stage: Stage) -> None:
    stage.epoch = await stage.tested.register_broker(BROKER)


async def stranger_registers(stage: Stage) -> None:
    if stage.look(znodes.broker_path(3)) is None:
        await stage.other.register_broker(MOVED)


async def mark_cleared_by_another(stage: Stage) -> None:
    """Another operation of the same controller clears the mark."""
    if (found := stage.registration()) is not None and found.epoch == stage.epoch:
        await stage.other.clear_possibly_short(3, stage.epoch, await stage.fence())


async def rewrite_registration(stage: Stage) -> None:
    """The registration gets another version, and keeps its mark."""
    if (found := stage.registration()) is not None and found.epoch == stage.epoch:
        await stage.other.store.set(znodes.broker_path(3), znodes.encode_broker(SHORT, 1))


async def registration_gone(stage: Stage) -> None:
    await stage.delete(znodes.broker_path(3))


async def vacate(stage: Stage) -> None:
    await stage.other.resign_controller(await stage.other.read_controller())
    stage.lease = await stage.other.read_controller()


async def former_process_becomes_controller(stage: Stage) -> None:
    """An earlier process of broker 3, whose session is still live, becomes the controller of the next epoch."""
    lease = await stage.other.read_controller()
    if lease.unclaimed:
        assert await stage.other.try_become_controller(3, lease) is not None


async def replace_and_resign(stage: Stage) -> None:
    await stage.depose()
    await stage.other.resign_controller(await stage.other.read_controller())


async def leader_shrinks_isr(stage: Stage) -> None:
    """The leader writes another ISR."""
    await stage.overwrite(znodes.state_path(TP), znodes.encode_state(replace(STATE, isr=(1,))))


async def others_end_with_the_same_state(stage: Stage) -> None:
    """Others write the state twice, and the second time write the operation's own state."""
    await leader_shrinks_isr(stage)
    await stage.overwrite(znodes.state_path(TP), znodes.encode_state(NEW))


async def second_state_appears(stage: Stage) -> None:
    if stage.look(znodes.partitions_path("t")) is not None and stage.look(znodes.state_path(SECOND)) is None:
        with suppress(StateConflict):  # the operation has written it meanwhile
            await stage.other.write_state(WriteState(SECOND, STATE, -1), await stage.fence())


async def parents_missing(stage: Stage) -> None:
    await stage.delete(znodes.state_path(TP))
    await stage.delete(znodes.partition_path(TP))
    await stage.delete(znodes.partitions_path("t"))


async def state_gone(stage: Stage) -> None:
    await stage.delete(znodes.state_path(TP))


async def reassigned_by_another(stage: Stage) -> None:
    moved = replace(TOPIC, partitions={0: (2, 1), 1: (2, 1)})
    await stage.overwrite(znodes.topic_path("t"), znodes.encode_topic(moved))


async def stale_settings(stage: Stage) -> None:
    """Settings of a topic that another tool has deleted."""
    await stage.overwrite(znodes.topic_config_path("u"), znodes.encode_topic_config({"retention.ms": "9"}))


async def stale_settings_gone(stage: Stage) -> None:
    if stage.look(znodes.topic_path("u")) is None:
        await stage.delete(znodes.topic_config_path("u"))


async def stale_settings_come(stage: Stage) -> None:
    if stage.look(znodes.topic_path("u")) is None:
        await stale_settings(stage)


async def topic_made_by_another(stage: Stage) -> None:
    if stage.look(znodes.topic_path("u")) is None:
        await stage.other.create_topic(replace(BESIDE, topic_id="CCCCCCCCCCCCCCCCCCCCCQ"), await stage.fence())


async def second_topic_gone(stage: Stage) -> None:
    await stage.remove_topic("u")


async def deletion_wanted(stage: Stage) -> None:
    if stage.look(znodes.delete_topic_path("t")) is None:
        await stage.other.store.create(znodes.delete_topic_path("t"))


async def other_setting(stage: Stage) -> None:
    """Change another setting of the topic as a rival."""
    await stage.other.topic_configs.change("t", lambda configs: {**configs, "flush.ms": "9"})


async def no_settings(stage: Stage) -> None:
    await stage.delete(znodes.topic_config_path("t"))


async def same_setting(stage: Stage) -> None:
    """Change the same setting as a rival, which gets its answer."""
    await stage.other.topic_configs.change("t", lambda configs: {**configs, "segment.bytes": "8"})
    stage.notes["before the rival"] = len(stage.store.applied)


async def last_writer_is_not_taken_back(stage: Stage, result: dict[str, str] | None) -> None:
    if stage.notes.get("before the rival"):
        assert len(stage.store.applied) == 1, "a repeated write took back what a rival wrote after the first one"


async def settings_stand(stage: Stage, result: dict[str, str] | None) -> None:
    topic = stage.data(znodes.topic_path("t"))
    if result is None or topic is None or znodes.decode_topic("t", topic, {}).topic_id != TOPIC.topic_id:
        return  # the settings were removed with their topic
    data = stage.data(znodes.topic_config_path("t"))
    standing = znodes.decode_topic_config(data or b"{}")
    assert result.items() <= standing.items(), f"{result} was returned, but the node has {standing}"
    assert "t" in (await stage.other.read_config_changes()).values(), "every change is notified"


def with_segment_bytes(configs: Any) -> dict[str, str]:
    return {**configs, "segment.bytes": "7"}


async def made_by_another_tool(stage: Stage) -> None:
    """The topic has neither settings nor a state yet."""
    await parents_missing(stage)
    await no_settings(stage)


async def gone_by_another_tool(stage: Stage) -> None:
    """Another tool deletes the topic without counting the removal."""
    await stage.delete(znodes.topic_path("t"))


OFFSET_PATH = znodes.consumer_offset_path(GROUP, TP)


async def committed_before(stage: Stage) -> None:
    await stage.other.zookeeper_offsets.commit(GROUP, TP, 5)


async def committed_by_another(stage: Stage) -> None:
    await stage.other.zookeeper_offsets.commit(GROUP, TP, 9)


async def commit_gone(stage: Stage) -> None:
    await stage.delete(OFFSET_PATH)


async def ensured_by_another(stage: Stage) -> None:
    await stage.other.ensure_paths()
    lease = await stage.other.read_controller()
    if lease.unclaimed:
        await stage.other.try_become_controller(2, lease)


ISR_NOTIFICATION = f"{znodes.ISR_CHANGE_NOTIFICATION}/isr_change_"
FIRST_ISR_NOTIFICATION = f"{ISR_NOTIFICATION}0000000000"
SECOND_ISR_NOTIFICATION = f"{ISR_NOTIFICATION}0000000001"
LOG_DIR_NOTIFICATION = f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_"
NEW_NODE = "each notification is a node of its own"


async def two_notifications_of_which_one_is_gone(stage: Stage) -> None:
    for tp in (TP, SECOND):
        await stage.other.notify_isr_change([tp])
    await stage.delete(FIRST_ISR_NOTIFICATION)


#: A repetition is harmless, so that a lost answer may lead to two notifications, but never to none.
AT_LEAST_ONCE = {
    "request_lost": done(),
    "answer_lost": done(effects=2),
    "changed": NEW_NODE,
    "anew": NEW_NODE,
    "deposed": Cell(Stage.depose, done()),
    "expired": expired(done()),
    "vanished": NEW_NODE,
    "most": 3,
}

WRITES = [
    Row(
        operation="ZkClient.ensure_paths",
        furnished=False,
        call=lambda stage: stage.tested.ensure_paths(),
        effect=znodes.CONTROLLER_EPOCH,
        fair=done(),
        request_lost=done(),
        answer_lost=done(),
        changed=Cell(ensured_by_another, not_done()),
        anew="no client deletes the paths",
        deposed=Cell(ensured_by_another, not_done()),
        expired=expired(done()),
        vanished="no client deletes the paths",
    ),
    Row(
        operation="ZkClient.cluster_id",
        call=lambda stage: stage.tested.cluster_id(),
        effect=znodes.CLUSTER_ID,
        fair=done(standing_cluster_id),
        request_lost=done(standing_cluster_id),
        answer_lost=done(standing_cluster_id),
        changed=Cell(another_id, not_done(standing_cluster_id)),
        anew="no client deletes the id",
        deposed=Cell(Stage.depose, done(standing_cluster_id)),
        expired=expired(done(standing_cluster_id)),
        vanished="no client deletes the id",
    ),
    Row(
        operation="ZkClient.next_producer_id_block",
        arrange=one_block_taken,
        call=lambda stage: stage.tested.next_producer_id_block(1),
        effect=znodes.PRODUCER_ID_BLOCK,
        fair=done(range(1000, 2000)),
        request_lost=done(range(1000, 2000)),
        answer_lost=done(range(2000, 3000), effects=2),
        changed=Cell(another_block, done(range(2000, 3000))),
        anew="ids would begin anew, as they do in Kafka",
        deposed=Cell(Stage.depose, done(range(1000, 2000))),
        expired=expired(done(range(1000, 2000))),
        vanished="ids would begin anew, as they do in Kafka",
        also=(done(range(3000, 4000), effects=2), done(range(3000, 4000), effects=3)),
        most=3,
        holds=no_shared_ids,
    ),
    Row(
        operation="ZkClient.next_producer_id_block",
        case="of a new cluster",
        call=lambda stage: stage.tested.next_producer_id_block(1),
        effect=znodes.PRODUCER_ID_BLOCK,
        fair=done(range(1000), effects=2),
        request_lost=done(range(1000), effects=2),
        answer_lost=done(range(1000, 2000), effects=3),
        changed=Cell(another_block, done(range(1000, 2000))),
        anew="ids would begin anew, as they do in Kafka",
        deposed=Cell(Stage.depose, done(range(1000), effects=2)),
        expired=expired(done(range(1000), effects=2)),
        vanished="ids would begin anew, as they do in Kafka",
        also=(done(range(2000, 3000), effects=2), done(range(2000, 3000), effects=3)),
        most=4,
        holds=no_shared_ids,
    ),
    Row(
        operation="ZkClient.register_broker",
        call=lambda stage: stage.tested.register_broker(SHORT),
        effect=znodes.broker_path(3),
        fair=done(own_registration(SHORT)),
        request_lost=done(own_registration(SHORT)),
        answer_lost=done(own_registration(SHORT)),
        changed=Cell(stranger_registers, not_done(BrokerIdTaken)),
        anew=Cell(stranger_registers, not_done(BrokerIdTaken)),
        deposed=Cell(Stage.depose, done(own_registration(SHORT))),
        expired=expired(done(own_registration(SHORT))),
        vanished=Cell(registration_gone, done(own_registration(SHORT))),
        also=(done(ANYTHING, effects=1), done(own_registration(SHORT), effects=2)),
        most=3,
        unguarded=counters(znodes.BROKER_IDS),
    ),
    Row(
        operation="ZkClient.register_broker",
        case="again",
        arrange=own_former_registration,
        call=lambda stage: stage.tested.register_broker(MOVED, stage.notes["session"]),
        effect=znodes.broker_path(3),
        fair=done(own_registration(MOVED), effects=2),
        request_lost=done(own_registration(MOVED), effects=2),
        answer_lost=done(own_registration(MOVED), effects=2),
        changed=Cell(rewrite_registration, done(own_registration(MOVED), effects=2)),
        anew=Cell(Stage.register_anew, not_done(BrokerIdTaken)),
        deposed=Cell(Stage.depose, done(own_registration(MOVED), effects=2)),
        expired=expired(done(own_registration(MOVED), effects=2)),
        vanished=Cell(registration_gone, done(own_registration(MOVED))),
        also=(done(ANYTHING), done(ANYTHING, effects=2), done(own_registration(MOVED), effects=3)),
        most=4,
        unguarded=counters(znodes.BROKER_IDS),
    ),
    Row(
        operation="ZkClient.register_broker",
        case="again in the same session",
        arrange=own_registration_of_this_session,
        call=lambda stage: stage.tested.register_broker(SHORT),
        effect=znodes.broker_path(3),
        fair=done(own_registration(SHORT), effects=2),
        request_lost=done(own_registration(SHORT), effects=2),
        answer_lost=done(own_registration(SHORT), effects=2),
        changed=Cell(rewrite_registration, done(own_registration(SHORT), effects=2)),
        anew="the session is the operation's own",
        deposed=Cell(Stage.depose, done(own_registration(SHORT), effects=2)),
        expired=expired(done(own_registration(SHORT))),
        vanished=Cell(registration_gone, done(own_registration(SHORT))),
        also=(done(ANYTHING), done(ANYTHING, effects=2), done(own_registration(SHORT), effects=3)),
        most=4,
        unguarded=counters(znodes.BROKER_IDS),
    ),
    Row(
        operation="ZkClient.unregister_broker",
        arrange=Stage.register,
        call=lambda stage: stage.tested.unregister_broker(3, stage.epoch),
        effect=znodes.broker_path(3),
        fair=done(),
        request_lost=done(),
        answer_lost=done(),
        changed=Cell(mark_cleared_by_another, done()),
        anew=Cell(Stage.register_anew, not_done()),
        deposed=Cell(Stage.depose, done()),
        expired=expired(done()),
        vanished=Cell(registration_gone, not_done()),
    ),
    Row(
        operation="ZkClient.fence_broker",
        arrange=Stage.register,
        call=lambda stage: stage.tested.fence_broker(3, stage.epoch, stage.lease.epoch_version),
        effect=znodes.broker_path(3),
        fair=done(True),
        request_lost=done(True),
        answer_lost=done(True),
        changed=Cell(mark_cleared_by_another, done(True)),
        anew=Cell(Stage.register_anew, not_done(False)),
        deposed=DEPOSED,
        expired=expired(done(True)),
        vanished=Cell(registration_gone, not_done(False)),
        also=(not_done(True),),  # after a lost request no client knows which of them has removed the node
    ),
    Row(
        operation="ZkClient.change_addresses",
        arrange=Stage.register,
        call=lambda stage: stage.tested.change_addresses(3, stage.epoch, MOVED.listeners),
        effect=znodes.broker_path(3),
        fair=done(True),
        request_lost=done(True),
        answer_lost=done(True),
        changed=Cell(mark_cleared_by_another, done(True)),
        anew=Cell(Stage.register_anew, not_done(False)),
        deposed=Cell(Stage.depose, done(True)),
        expired=expired(done(True)),
        vanished=Cell(registration_gone, not_done(False)),
    ),
    Row(
        operation="ZkClient.clear_possibly_short",
        arrange=Stage.register,
        call=lambda stage: stage.tested.clear_possibly_short(3, stage.epoch, stage.lease.epoch_version),
        effect=znodes.broker_path(3),
        fair=done(),
        request_lost=done(),
        answer_lost=done(),
        changed=Cell(rewrite_registration, done()),
        anew=Cell(Stage.register_anew, not_done()),
        deposed=DEPOSED,
        expired=expired(done()),
        vanished=Cell(registration_gone, not_done()),
        most=2,  # once more if a rival has put the mark back
    ),
    Row(
        operation="ZkClient.clear_possibly_short",
        case="whose mark is gone",
        arrange=lambda stage: stage.register(BROKER),
        call=lambda stage: stage.tested.clear_possibly_short(3, stage.epoch, stage.lease.epoch_version),
        effect=znodes.broker_path(3),
        fair=not_done(),
        request_lost=not_done(),
        answer_lost=not_done(),
        changed=Cell(mark_cleared_by_another, not_done()),
        anew=Cell(Stage.register_anew, not_done()),
        deposed=Cell(Stage.depose, not_done()),
        expired=expired(not_done()),
        vanished=Cell(registration_gone, not_done()),
    ),
    Row(
        operation="ZkClient.try_become_controller",
        arrange=vacate,
        call=lambda stage: stage.tested.try_become_controller(3, stage.lease),
        effect=znodes.CONTROLLER,
        fair=done(own_lease),
        request_lost=not_done(None),
        answer_lost=done(own_lease),
        changed=Cell(Stage.depose, not_done(None)),
        anew=Cell(replace_and_resign, not_done(None)),
        deposed=Cell(Stage.depose, not_done(None)),
        expired=expired(not_done(None)),
        vanished="there is no controller",
        also=(done(ANYTHING), Outcome(None, 1)),
    ),
    Row(
        operation="ZkClient.try_become_controller",
        case="against a former process",
        arrange=vacate,
        call=lambda stage: stage.tested.try_become_controller(3, stage.lease),
        effect=znodes.CONTROLLER,
        fair=done(own_lease),
        request_lost=not_done(None),
        answer_lost=done(own_lease),
        changed=Cell(former_process_becomes_controller, not_done(None)),
        anew=Cell(replace_and_resign, not_done(None)),
        deposed=Cell(Stage.depose, not_done(None)),
        expired=expired(not_done(None)),
        vanished="there is no controller",
        also=(done(ANYTHING), Outcome(None, 1)),
    ),
    Row(
        operation="ZkClient.try_become_controller",
        case="and oust",
        call=lambda stage: stage.tested.try_become_controller(3, stage.lease, replace_controller=True),
        effect=znodes.CONTROLLER,
        fair=done(own_lease),
        request_lost=not_done(None),
        answer_lost=done(own_lease),
        changed=Cell(Stage.depose, not_done(None)),
        anew=Cell(replace_and_resign, not_done(None)),
        deposed=Cell(Stage.depose, not_done(None)),
        expired=expired(not_done(None)),
        vanished=Cell(lambda stage: stage.delete(znodes.CONTROLLER), not_done(None)),
        also=(done(ANYTHING), Outcome(None, 1)),
    ),
    Row(
        operation="ZkClient.resign_controller",
        call=lambda stage: stage.tested.resign_controller(stage.lease),
        effect=znodes.CONTROLLER,
        fair=done(),
        request_lost=UNKNOWN_AND_NOT_DONE,
        answer_lost=UNKNOWN_AND_DONE,
        changed=Cell(Stage.depose, not_done()),
        anew=Cell(replace_and_resign, not_done()),
        deposed=Cell(Stage.depose, not_done()),
        expired=expired(UNKNOWN_AND_NOT_DONE),
        vanished=Cell(lambda stage: stage.delete(znodes.CONTROLLER), not_done()),
        also=(not_done(),),
    ),
    Row(
        operation="StateZnodes.change_isr",
        call=lambda stage: stage.tested.change_isr(TP, NEW, 0),
        effect=znodes.state_path(TP),
        fair=done(1),
        request_lost=UNKNOWN_AND_NOT_DONE,
        answer_lost=done(1),
        changed=Cell(leader_shrinks_isr, not_done(StateConflict)),
        anew="its caller has to know that the topic is the same, as the docstring says",
        deposed=Cell(Stage.depose, done(1)),
        expired=expired(UNKNOWN_AND_NOT_DONE),
        vanished=Cell(Stage.remove_topic, not_done(StateConflict)),
    ),
    Row(
        operation="StateZnodes.change_isr",
        case="to what others have made of it later",
        call=lambda stage: stage.tested.change_isr(TP, NEW, 0),
        effect=znodes.state_path(TP),
        fair=done(1),
        request_lost=UNKNOWN_AND_NOT_DONE,
        answer_lost=done(1),
        changed=Cell(others_end_with_the_same_state, not_done(StateConflict)),
        anew="its caller has to know that the topic is the same, as the docstring says",
        deposed=Cell(Stage.depose, done(1)),
        expired=expired(UNKNOWN_AND_NOT_DONE),
        vanished=Cell(Stage.remove_topic, not_done(StateConflict)),
        also=(Outcome(StateConflict, 1),),  # the write was made, and others have written after it
    ),
    Row(
        operation="StateZnodes.write_state",
        call=lambda stage: stage.tested.write_state(WriteState(TP, NEW, 0), stage.lease.epoch_version),
        effect=znodes.state_path(TP),
        fair=done(1),
        request_lost=done(1),
        answer_lost=done(1),
        changed=Cell(leader_shrinks_isr, not_done(StateConflict)),
        anew=ONE_WRITER,
        deposed=DEPOSED,
        expired=expired(done(1)),
        vanished=Cell(Stage.remove_topic, not_done(StateConflict)),
    ),
    Row(
        operation="StateZnodes.write_state",
        case="as its leader does, who names no eligible replica",
        call=lambda stage: stage.tested.write_state(
            WriteState(TP, replace(STATE, isr=(1,), eligible=(2,)), 0), stage.lease.epoch_version
        ),
        effect=znodes.state_path(TP),
        fair=done(1),
        request_lost=done(1),
        answer_lost=done(1),
        changed=Cell(leader_shrinks_isr, not_done(StateConflict)),
        anew=ONE_WRITER,
        deposed=DEPOSED,
        expired=expired(done(1)),
        vanished=Cell(Stage.remove_topic, not_done(StateConflict)),
    ),
    Row(
        operation="StateZnodes.write_state",
        case="of a new partition",
        call=lambda stage: stage.tested.write_state(WriteState(SECOND, NEW, -1), stage.lease.epoch_version),
        effect=znodes.state_path(SECOND),
        fair=done(0),
        request_lost=done(0),
        answer_lost=done(0),
        changed=Cell(second_state_appears, not_done(StateConflict)),
        anew=ONE_WRITER,
        deposed=DEPOSED,
        expired=expired(done(0)),
        vanished=Cell(Stage.remove_topic, not_done(StateConflict)),
    ),
    Row(
        operation="StateZnodes.write_state",
        case="of a topic without partitions",
        arrange=parents_missing,
        call=lambda stage: stage.tested.write_state(WriteState(TP, NEW, -1), stage.lease.epoch_version),
        effect=znodes.state_path(TP),
        fair=done(0),
        request_lost=done(0),
        answer_lost=done(0),
        changed=Cell(
            lambda stage: stage.other.write_state(WriteState(TP, STATE, -1), stage.lease.epoch_version),
            not_done(StateConflict),
        ),
        anew=ONE_WRITER,
        deposed=DEPOSED,
        expired=expired(done(0)),
        vanished=Cell(Stage.remove_topic, not_done(StateConflict)),
    ),
    Row(
        operation="StateZnodes.write_states",
        call=lambda stage: stage.tested.write_states(
            [WriteState(TP, NEW, 0), WriteState(SECOND, NEW, -1)], stage.lease.epoch_version
        ),
        effect=znodes.state_path(SECOND),
        fair=done([1, 0]),
        request_lost=done([1, 0]),
        answer_lost=done([1, 0]),
        changed=Cell(leader_shrinks_isr, done(written_but_for(0))),
        anew=ONE_WRITER,
        deposed=DEPOSED,
        expired=expired(done([1, 0])),
        vanished=Cell(Stage.remove_topic, not_done(written_but_for(0, 1))),
        also=written_alone(1),
    ),
    Row(
        operation="StateZnodes.write_states",
        case="of which the last one may be refused",
        call=lambda stage: stage.tested.write_states(
            [WriteState(TP, NEW, 0), WriteState(SECOND, NEW, -1)], stage.lease.epoch_version
        ),
        effect=znodes.state_path(TP),
        fair=done([1, 0]),
        request_lost=done([1, 0]),
        answer_lost=done([1, 0]),
        changed=Cell(second_state_appears, done(written_but_for(1))),
        anew=ONE_WRITER,
        deposed=DEPOSED,
        expired=expired(done([1, 0])),
        vanished=Cell(Stage.remove_topic, not_done(written_but_for(0, 1))),
        also=written_alone(0),
    ),
    Row(
        operation="ZkClient.notify_isr_change",
        call=lambda stage: stage.tested.notify_isr_change([TP]),
        effect=ISR_NOTIFICATION,
        fair=done(),
        **AT_LEAST_ONCE,
    ),
    Row(
        operation="ZkClient.notify_log_dir_failure",
        call=lambda stage: stage.tested.notify_log_dir_failure(3),
        effect=LOG_DIR_NOTIFICATION,
        fair=done(),
        **AT_LEAST_ONCE,
    ),
    Row(
        operation="ZkClient.drop_notifications",
        arrange=lambda stage: stage.other.notify_isr_change([TP]),
        call=lambda stage: stage.tested.drop_notifications([FIRST_ISR_NOTIFICATION], stage.lease.epoch_version),
        effect=FIRST_ISR_NOTIFICATION,
        fair=done(),
        request_lost=UNKNOWN_AND_NOT_DONE,
        answer_lost=UNKNOWN_AND_DONE,
        changed="no client changes a notification",
        anew="no two notifications have one number",
        deposed=DEPOSED,
        expired=expired(UNKNOWN_AND_NOT_DONE),
        vanished=Cell(lambda stage: stage.delete(FIRST_ISR_NOTIFICATION), not_done()),
    ),
    Row(
        operation="ZkClient.drop_notifications",
        case="of which the first is gone",
        arrange=two_notifications_of_which_one_is_gone,
        call=lambda stage: stage.tested.drop_notifications(
            [FIRST_ISR_NOTIFICATION, SECOND_ISR_NOTIFICATION], stage.lease.epoch_version
        ),
        effect=SECOND_ISR_NOTIFICATION,
        fair=done(),
        request_lost=UNKNOWN_AND_NOT_DONE,
        answer_lost=UNKNOWN_AND_DONE,
        changed="no client changes a notification",
        anew="no two notifications have one number",
        deposed=DEPOSED,
        expired=expired(UNKNOWN_AND_NOT_DONE),
        vanished=Cell(lambda stage: stage.delete(SECOND_ISR_NOTIFICATION), not_done()),
    ),
    Row(
        operation="TopicZnodes.create_topic",
        call=lambda stage: stage.tested.create_topic(BESIDE, stage.lease.epoch_version),
        effect=znodes.topic_path("u"),
        fair=done(True),
        request_lost=UNKNOWN_AND_NOT_DONE,
        answer_lost=done(True),
        changed=Cell(topic_made_by_another, not_done(False)),
        anew=Cell(stale_settings_come, done(True)),
        deposed=DEPOSED,
        expired=expired(done(True)),
        vanished=Cell(second_topic_gone, done(True)),
        unguarded={znodes.topic_config_path("u"): "settings of a topic that is gone"},
    ),
    Row(
        operation="TopicZnodes.create_topic",
        case="over settings that were left",
        arrange=stale_settings,
        call=lambda stage: stage.tested.create_topic(BESIDE, stage.lease.epoch_version),
        effect=znodes.topic_path("u"),
        fair=done(True),
        request_lost=UNKNOWN_AND_NOT_DONE,
        answer_lost=done(True),
        changed=Cell(topic_made_by_another, not_done(False)),
        anew=Cell(stale_settings_gone, done(True)),
        deposed=DEPOSED,
        expired=expired(done(True)),
        vanished=Cell(second_topic_gone, done(True)),
        unguarded={znodes.topic_config_path("u"): "settings of a topic that is gone"},
    ),
    Row(
        operation="TopicZnodes.write_assignment",
        call=lambda stage: stage.tested.write_assignment(
            replace(TOPIC, partitions={0: (1, 2, 3), 1: (2, 1)}, version=0), stage.lease.epoch_version
        ),
        effect=znodes.topic_path("t"),
        fair=done(read_as_written),
        request_lost=done(read_as_written),
        answer_lost=done(read_as_written),
        changed=Cell(reassigned_by_another, not_done(AssignmentConflict)),
        anew=ONE_WRITER,
        deposed=DEPOSED,
        expired=expired(done(read_as_written)),
        vanished=Cell(Stage.remove_topic, not_done(AssignmentConflict)),
        also=(done(ANYTHING),),
    ),
    Row(
        operation="TopicZnodes.request_deletion",
        call=lambda stage: stage.tested.request_deletion("t", stage.lease.epoch_version),
        effect=znodes.delete_topic_path("t"),
        fair=done(),
        request_lost=done(),
        answer_lost=done(),
        changed=Cell(deletion_wanted, not_done()),
        anew=ONE_WRITER,
        deposed=DEPOSED,
        expired=expired(done()),
        vanished=Cell(Stage.remove_topic, done()),
        most=2,
    ),
    Row(
        operation="TopicZnodes.remove_some",
        arrange=deletion_wanted,
        call=lambda stage: stage.tested.remove_some("t", stage.lease.epoch_version),
        effect=znodes.topic_path("t"),
        fair=done(False),
        request_lost=done(False),
        answer_lost=done(False),
        changed=Cell(second_state_appears, done(False)),
        anew=ONE_WRITER,
        deposed=DEPOSED,
        expired=expired(done(False)),
        vanished=Cell(Stage.remove_topic, not_done(False)),
        unguarded={
            **counters(znodes.CONFIG_TOPICS),
            **dict.fromkeys(
                (
                    znodes.topic_config_path("t"),
                    *(path(tp) for tp in (TP, SECOND) for path in (znodes.partition_path, znodes.state_path)),
                ),
                "it is removed on any version",
            ),
        },
    ),
    Row(
        operation="TopicConfigs.change",
        call=lambda stage: stage.tested.topic_configs.change("t", with_segment_bytes),
        effect=znodes.topic_config_path("t"),
        owner=znodes.topic_path("t"),
        fair=done({"retention.ms": "5", "segment.bytes": "7"}),
        request_lost=done({"retention.ms": "5", "segment.bytes": "7"}),
        answer_lost=done({"retention.ms": "5", "segment.bytes": "7"}),
        changed=Cell(other_setting, done({"retention.ms": "5", "segment.bytes": "7", "flush.ms": "9"})),
        anew=Cell(Stage.remake_topic, done({"segment.bytes": "7"})),
        deposed=Cell(Stage.depose, done({"retention.ms": "5", "segment.bytes": "7"})),
        expired=expired(done({"retention.ms": "5", "segment.bytes": "7"})),
        vanished=Cell(Stage.remove_topic, not_done(None)),
        also=(done({"segment.bytes": "7"}, effects=2),),  # once for each topic of the name
        most=2,
        holds=settings_stand,
    ),
    Row(
        operation="TopicConfigs.change",
        case="against a rival of the same setting",
        call=lambda stage: stage.tested.topic_configs.change("t", with_segment_bytes),
        effect=znodes.topic_config_path("t"),
        owner=znodes.topic_path("t"),
        fair=done({"retention.ms": "5", "segment.bytes": "7"}),
        request_lost=done({"retention.ms": "5", "segment.bytes": "7"}),
        answer_lost=done({"retention.ms": "5", "segment.bytes": "7"}),
        changed=Cell(same_setting, done({"retention.ms": "5", "segment.bytes": "7"})),
        anew=Cell(no_settings, done({"segment.bytes": "7"})),
        deposed=Cell(Stage.depose, done({"retention.ms": "5", "segment.bytes": "7"})),
        expired=expired(done({"retention.ms": "5", "segment.bytes": "7"})),
        vanished=Cell(no_settings, done({"segment.bytes": "7"})),
        most=2,
        holds=last_writer_is_not_taken_back,
    ),
    Row(
        operation="TopicConfigs.change",
        case="of a topic of another tool",
        arrange=made_by_another_tool,
        call=lambda stage: stage.tested.topic_configs.change("t", with_segment_bytes),
        effect=znodes.topic_config_path("t"),
        owner=znodes.topic_path("t"),
        fair=done({"segment.bytes": "7"}),
        request_lost=done({"segment.bytes": "7"}),
        answer_lost=done({"segment.bytes": "7"}),
        changed=Cell(other_setting, done({"segment.bytes": "7", "flush.ms": "9"})),
        anew=Cell(no_settings, done({"segment.bytes": "7"})),
        deposed=Cell(Stage.depose, done({"segment.bytes": "7"})),
        expired=expired(done({"segment.bytes": "7"})),
        vanished=Cell(gone_by_another_tool, not_done(None)),
        most=2,  # once more if a rival has deleted the settings
    ),
    Row(
        operation="TopicConfigs.change",
        case="of a topic without settings, against a rival of the same setting",
        arrange=no_settings,
        call=lambda stage: stage.tested.topic_configs.change("t", with_segment_bytes),
        effect=znodes.topic_config_path("t"),
        fair=done({"segment.bytes": "7"}),
        request_lost=done({"segment.bytes": "7"}),
        answer_lost=done({"segment.bytes": "7"}),
        changed=Cell(same_setting, done({"segment.bytes": "7"})),
        anew=Cell(Stage.remake_topic, done({"segment.bytes": "7"})),
        deposed=Cell(Stage.depose, done({"segment.bytes": "7"})),
        expired=expired(done({"segment.bytes": "7"})),
        vanished=Cell(Stage.remove_topic, not_done(None)),
        most=2,
        holds=last_writer_is_not_taken_back,
    ),
    Row(
        operation="ZooKeeperOffsets.commit",
        arrange=committed_before,
        call=lambda stage: stage.tested.zookeeper_offsets.commit(GROUP, TP, 6),
        effect=OFFSET_PATH,
        fair=done(),
        request_lost=done(),
        answer_lost=done(),
        changed=Cell(committed_by_another, done()),
        anew=NEVER_DELETED,
        deposed=Cell(Stage.depose, done()),
        expired=expired(done()),
        vanished=Cell(commit_gone, done()),
        most=2,  # once more if a tool has deleted the node
    ),
    Row(
        operation="ZooKeeperOffsets.commit",
        case="the first of its group",
        call=lambda stage: stage.tested.zookeeper_offsets.commit(GROUP, TP, 6),
        effect=OFFSET_PATH,
        fair=done(),
        request_lost=done(),
        answer_lost=done(),
        changed=Cell(committed_by_another, done()),
        anew=NEVER_DELETED,
        deposed=Cell(Stage.depose, done()),
        expired=expired(done()),
        vanished=Cell(commit_gone, done()),
        most=2,  # once more if a tool has deleted the node
    ),
]


# --- reads ------------------------------------------------------------------------------------------------------------

STANDING = VersionedState(STATE, 0)
SHRUNK = VersionedState(replace(STATE, isr=(1,)), 1)


def epoch_of_registration(stage: Stage) -> int:
    stat = stage.look(znodes.broker_path(3))
    return -1 if stat is None else stat.czxid


async def registered_whole(stage: Stage) -> None:
    await stage.register(BROKER)


def is_broker(expected: Any) -> Expected:
    return lambda stage, found: found == (expected and replace(expected, epoch=epoch_of_registration(stage)))


def is_lease(controller_id: int, epoch: int) -> Expected:
    return lambda stage, lease: (lease.controller_id, lease.epoch) == (controller_id, epoch)


def states(*pairs: tuple[TopicPartition, VersionedState]) -> tuple[Any, Any]:
    return dict(pairs), set()


async def one_of_each_notification(stage: Stage) -> None:
    await stage.other.notify_isr_change([TP])
    await stage.other.notify_log_dir_failure(3)
    await stage.other.topic_configs.change("t", with_segment_bytes)


async def second_isr_change(stage: Stage) -> None:
    await stage.other.notify_isr_change([SECOND])


async def isr_change_dropped(stage: Stage) -> None:
    await stage.delete(FIRST_ISR_NOTIFICATION)


READS = [
    ReadRow(
        operation="ZkClient.is_registered",
        arrange=registered_whole,
        call=lambda stage: stage.tested.is_registered(3, stage.epoch),
        before=True,
        rivals={"anew": (Stage.register_anew, False), "vanished": (registration_gone, False)},
    ),
    ReadRow(
        operation="ZkClient.read_broker",
        arrange=registered_whole,
        call=lambda stage: stage.tested.read_broker(3),
        before=lambda stage, found: found == replace(BROKER, epoch=stage.epoch),
        rivals={
            "anew": (Stage.register_anew, is_broker(replace(MOVED, possibly_short=True))),
            "vanished": (registration_gone, None),
        },
    ),
    ReadRow(
        operation="ZkClient.read_brokers",
        arrange=registered_whole,
        call=lambda stage: stage.tested.read_brokers(),
        before=lambda stage, found: found == {3: replace(BROKER, epoch=stage.epoch)},
        rivals={
            "anew": (
                Stage.register_anew,
                lambda stage, found: (
                    found == {3: replace(MOVED, possibly_short=True, epoch=epoch_of_registration(stage))}
                ),
            ),
            "vanished": (registration_gone, {}),
        },
    ),
    ReadRow(
        operation="ZkClient.read_controller",
        call=lambda stage: stage.tested.read_controller(),
        before=is_lease(1, 1),
        rivals={
            "deposed": (Stage.depose, is_lease(2, 2)),
            "expired": (Stage.expire, is_lease(-1, 1)),
            "vanished": (lambda stage: stage.delete(znodes.CONTROLLER), is_lease(-1, 1)),
        },
        between=(is_lease(2, 1),),  # a lease with an older epoch loses the next election, which is safe
    ),
    ReadRow(
        operation="StateZnodes.read_state",
        call=lambda stage: stage.tested.read_state(TP),
        before=STANDING,
        rivals={"changed": (leader_shrinks_isr, SHRUNK), "vanished": (state_gone, None)},
    ),
    ReadRow(
        operation="StateZnodes.read_states",
        call=lambda stage: stage.tested.read_states([TP, SECOND]),
        before=states((TP, STANDING)),
        rivals={"changed": (leader_shrinks_isr, states((TP, SHRUNK))), "vanished": (state_gone, states())},
    ),
    ReadRow(
        operation="StateZnodes.read_topics_with_states",
        call=lambda stage: stage.tested.read_topics_with_states(["t"]),
        before=({"t": TOPIC}, {TP: STANDING}),
        rivals={
            "changed": (leader_shrinks_isr, ({"t": TOPIC}, {TP: SHRUNK})),
            "vanished": (state_gone, ({"t": TOPIC}, {})),
        },
    ),
    ReadRow(
        operation="ZkClient.read_isr_changes",
        arrange=one_of_each_notification,
        call=lambda stage: stage.tested.read_isr_changes(),
        before=lambda stage, found: list(found.values()) == [[TP]],
        rivals={
            "changed": (second_isr_change, lambda stage, found: list(found.values()) == [[TP], [SECOND]]),
            "vanished": (isr_change_dropped, {}),
        },
    ),
    ReadRow(
        operation="ZkClient.read_log_dir_failures",
        arrange=one_of_each_notification,
        call=lambda stage: stage.tested.read_log_dir_failures(),
        before=lambda stage, found: list(found.values()) == [3],
        rivals={"vanished": (lambda stage: stage.delete(f"{LOG_DIR_NOTIFICATION}0000000000"), {})},
    ),
    ReadRow(
        operation="ZkClient.read_config_changes",
        arrange=one_of_each_notification,
        call=lambda stage: stage.tested.read_config_changes(),
        before=lambda stage, found: list(found.values()) == ["t"],
        rivals={"changed": (other_setting, lambda stage, found: list(found.values()) == ["t", "t"])},
    ),
    ReadRow(
        operation="TopicZnodes.topic_names",
        call=lambda stage: stage.tested.topic_names(),
        before=["t"],
        rivals={"changed": (topic_made_by_another, ["t", "u"]), "vanished": (Stage.remove_topic, [])},
    ),
    ReadRow(
        operation="TopicZnodes.read_topic",
        call=lambda stage: stage.tested.read_topic("t"),
        before=lambda stage, found: (found, found.version) == (TOPIC, 0),
        rivals={
            "changed": (reassigned_by_another, lambda stage, found: found.version == 1),
            "vanished": (Stage.remove_topic, None),
        },
        between=(lambda stage, found: found == replace(TOPIC, configs={}),),
    ),
    ReadRow(
        operation="TopicZnodes.read_topics",
        call=lambda stage: stage.tested.read_topics(["t", "never"]),
        before={"t": TOPIC},
        rivals={"vanished": (Stage.remove_topic, {})},
        between=({"t": replace(TOPIC, configs={})},),
    ),
    ReadRow(
        operation="TopicZnodes.topics_to_delete",
        call=lambda stage: stage.tested.topics_to_delete(),
        before=[],
        rivals={"changed": (deletion_wanted, ["t"]), "vanished": (Stage.remove_topic, [])},
    ),
    ReadRow(
        operation="TopicZnodes.existing_topics",
        call=lambda stage: stage.tested.existing_topics(),
        before={"t"},
        rivals={"changed": (deletion_wanted, set()), "vanished": (Stage.remove_topic, set())},
    ),
    ReadRow(
        operation="TopicConfigs.read",
        call=lambda stage: stage.tested.topic_configs.read("t"),
        before={"retention.ms": "5"},
        rivals={
            "changed": (other_setting, {"retention.ms": "5", "flush.ms": "9"}),
            "vanished": (Stage.remove_topic, None),
        },
        between=({},),
    ),
    ReadRow(
        operation="TopicConfigs.read_all",
        call=lambda stage: stage.tested.topic_configs.read_all(["t"]),
        before={"t": {"retention.ms": "5"}},
        rivals={
            "changed": (other_setting, {"t": {"retention.ms": "5", "flush.ms": "9"}}),
            "vanished": (no_settings, {"t": {}}),
        },
    ),
    ReadRow(
        operation="ZooKeeperOffsets.read",
        arrange=committed_before,
        call=lambda stage: stage.tested.zookeeper_offsets.read(GROUP, TP),
        before=5,
        rivals={"changed": (committed_by_another, 9), "vanished": (commit_gone, None)},
    ),
    ReadRow(
        operation="ZooKeeperOffsets.partitions",
        arrange=committed_before,
        call=lambda stage: stage.tested.zookeeper_offsets.partitions(GROUP),
        before=[TP],
        rivals={"vanished": (commit_gone, [])},
    ),
    ReadRow(
        operation="ZooKeeperOffsets.groups",
        arrange=committed_before,
        call=lambda stage: stage.tested.zookeeper_offsets.groups(),
        before=[GROUP],
        rivals={"changed": (committed_by_another, [GROUP])},
    ),
]
