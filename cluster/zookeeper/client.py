"""What brokers and the controller do with ZooKeeper, in the words of the domain.

Writes are never repeated blindly: after an unknown outcome the znode is read again and compared with what was to be
written. Everything gives up after `patience_ms`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from cluster.state import (
    NO_VERSION,
    BrokerRegistration,
    ControllerLease,
    PartitionState,
    TopicAssignment,
    VersionedState,
)
from cluster.uuids import random_uuid
from cluster.zookeeper import znodes
from cluster.zookeeper.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    OutcomeUnknownError,
    Set,
    Store,
    TransactionFailedError,
)
from cluster.zookeeper.topic_znodes import TopicZnodes
from cluster.zookeeper.write_conflicts import BrokerIdTaken, ControllerFenced, StateConflict
from cluster.zookeeper.zookeeper_offsets import ZooKeeperOffsets
from tidelog.clock import Clock
from tidelog.model import NO_LEADER, TopicPartition

log = logging.getLogger(__name__)

PRODUCER_ID_BLOCK_SIZE = 1000

T = TypeVar("T")


class ZkClient(TopicZnodes):
    """The domain's operations over one store. `patience_ms` bounds each, however often it has to look again."""

    def __init__(self, store: Store, clock: Clock, *, patience_ms: int = 6000) -> None:
        super().__init__(store, patience_ms)
        self._clock = clock

    @property
    def store(self) -> Store:
        """The session underneath."""
        return self._store

    @property
    def zookeeper_offsets(self) -> ZooKeeperOffsets:
        """What groups have committed into ZooKeeper."""
        return ZooKeeperOffsets(self._store, self._retrying)

    # --- the cluster ---------------------------------------------------------------------------------

    async def ensure_paths(self) -> None:
        """Makes the persistent parents, as the first broker of a new cluster must."""
        for path in znodes.PERSISTENT_PATHS:
            await self._retrying.ensure(path)
        await self._retrying.ensure(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))

    async def cluster_id(self, rng: random.Random | None = None) -> str:
        """The cluster's id; the first caller ever invents it."""
        fresh = random_uuid(rng) if rng else random_uuid()
        await self._retrying.ensure(znodes.CLUSTER_ID, znodes.encode_cluster_id(fresh))
        return znodes.decode_cluster_id(
            (await self._retrying.until_answered(lambda: self._store.get(znodes.CLUSTER_ID))).data
        )

    async def next_producer_id_block(self, broker_id: int) -> range:
        """A block of producer ids that nobody else ever gets. Ids may be skipped, never shared."""
        async with self._retrying.deadline():
            while True:
                try:
                    node = await self._retrying.until_answered(lambda: self._store.get(znodes.PRODUCER_ID_BLOCK))
                except NoNodeError:
                    await self._retrying.ensure(
                        znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(broker_id, range(0))
                    )
                    continue
                _, last = znodes.decode_producer_id_block(node.data)
                block = range(last.stop, last.stop + PRODUCER_ID_BLOCK_SIZE)
                data = znodes.encode_producer_id_block(broker_id, block)
                try:
                    await self._store.set(znodes.PRODUCER_ID_BLOCK, data, node.stat.version)
                except (BadVersionError, OutcomeUnknownError):
                    await (
                        self._retrying.pause()
                    )  # after an unknown outcome a fresh block is taken: skipping is harmless
                else:
                    return block

    # --- brokers -------------------------------------------------------------------------------------

    async def register_broker(self, registration: BrokerRegistration, previous_session: int = 0) -> int:
        """Makes `/brokers/ids/N` and returns its czxid, the broker epoch.

        The same transaction raises the version of `/brokers/ids`, which counts all registrations (see
        `_change_registration`).
        An own old registration (of `previous_session` or of this session) is removed first. Somebody else's is
        waited for as long as its session may need to end; then BrokerIdTaken.
        """
        path = znodes.broker_path(registration.broker_id)
        data = znodes.encode_broker(registration, self._clock.now_ms())
        deadline_ms = self._clock.monotonic_ms() + self._store.session_timeout_ms
        while True:
            try:
                await self._store.multi([Create(path, data, ephemeral=True), Set(znodes.BROKER_IDS, b"")])
            except TransactionFailedError as error:
                if not isinstance(error.cause, NodeExistsError):
                    raise error.cause from error
            except OutcomeUnknownError:
                await self._retrying.pause()
            node = await self._retrying.get_or_none(path)
            if node is None:
                continue
            if node.stat.owner == self._store.session_id and node.data == data:
                return node.stat.czxid
            if node.stat.owner and node.stat.owner in (previous_session, self._store.session_id):
                await self.unregister_broker(registration.broker_id, node.stat.czxid)
                continue
            if self._clock.monotonic_ms() >= deadline_ms:
                raise BrokerIdTaken(
                    f"broker id {registration.broker_id} is registered by another live process; "
                    "give this broker another id, or stop that one"
                )
            await self._retrying.pause()

    async def unregister_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Removes the own registration, so that the others need not find out."""
        path = znodes.broker_path(broker_id)
        await self._change_registration(
            broker_id, broker_epoch, lambda node: Delete(path, node.stat.version), self._store.multi
        )

    async def is_registered(self, broker_id: int, broker_epoch: int, *, watch: bool = False) -> bool:
        """Whether the registration with this epoch stands. A watch fires when that may have changed."""
        stat = await self._retrying.until_answered(
            lambda: self._store.exists(znodes.broker_path(broker_id), watch=watch)
        )
        return stat is not None and stat.czxid == broker_epoch

    async def read_broker(self, broker_id: int) -> BrokerRegistration | None:
        """One registration, None where there is none."""
        node = await self._retrying.get_or_none(znodes.broker_path(broker_id))
        try:
            return None if node is None else znodes.decode_broker(broker_id, node.data, node.stat.czxid)
        except znodes.MalformedZnodeError as error:
            log.warning("taken for absent: %s", error)
            return None

    async def read_brokers(self, *, watch: bool = False) -> dict[int, BrokerRegistration]:
        """All live brokers. The watch fires when one comes or goes."""
        names = await self._retrying.until_answered(lambda: self._store.children(znodes.BROKER_IDS, watch=watch))
        found = await asyncio.gather(*(self.read_broker(int(name)) for name in names if name.isdigit()))
        return {broker.broker_id: broker for broker in found if broker is not None}

    async def fence_broker(self, broker_id: int, broker_epoch: int, epoch_version: int) -> bool:
        """Removes a dead broker's registration on behalf of the controller, if its epoch is still `broker_epoch`.

        Returns True if the registration was removed, or if the answer was lost and the registration is gone.
        ControllerFenced.
        """
        path = znodes.broker_path(broker_id)
        return await self._change_registration(
            broker_id,
            broker_epoch,
            lambda node: Delete(path, node.stat.version),
            lambda operations: self._fenced(epoch_version, operations),
        )

    async def clear_possibly_short(self, broker_id: int, broker_epoch: int, epoch_version: int) -> None:
        """The controller takes the mark `possibly_short` from a registration, if it is still that one."""
        path = znodes.broker_path(broker_id)

        def without_mark(node: Node) -> Operation | None:
            registration = znodes.decode_broker(broker_id, node.data, broker_epoch)
            if not registration.possibly_short:
                return None
            data = znodes.encode_broker(replace(registration, possibly_short=False), self._clock.now_ms())
            return Set(path, data, node.stat.version)

        await self._change_registration(
            broker_id, broker_epoch, without_mark, lambda operations: self._fenced(epoch_version, operations)
        )

    async def _change_registration(
        self,
        broker_id: int,
        broker_epoch: int,
        change: Callable[[Node], Operation | None],
        commit: Callable[[Sequence[Operation]], Awaitable[object]],
    ) -> bool:
        """Commits the operation that `change` returns for the registration with this epoch.

        Returns True if the operation was committed, or may have been: an answer was lost, and the registration has
        another epoch now, or `change` returns None. ZooKeeper does not compare czxids, and a later registration of the
        broker has the same version as this one. So the commit also checks the version of `/brokers/ids`, which counts
        the registrations of all brokers.
        """
        path, tried = znodes.broker_path(broker_id), False
        async with self._retrying.deadline():
            while True:
                registrations = await self._retrying.until_answered(lambda: self._store.get(znodes.BROKER_IDS))
                node = await self._retrying.get_or_none(path)
                if node is None or node.stat.czxid != broker_epoch:
                    return tried
                if (operation := change(node)) is None:
                    return tried
                try:
                    await commit([Check(znodes.BROKER_IDS, registrations.stat.version), operation])
                except TransactionFailedError:
                    await self._retrying.pause()
                except OutcomeUnknownError:
                    tried = True
                    await self._retrying.pause()
                else:
                    return True

    # --- the controller's seat -----------------------------------------------------------------------

    async def read_controller(self, *, watch: bool = False) -> ControllerLease:
        """Who is the controller. The fence is read first, and so never newer than the answer."""
        fence = await self._retrying.until_answered(lambda: self._store.get(znodes.CONTROLLER_EPOCH))
        # The watch stands on `exists`, because a watch of `get` is not armed while the seat is vacant.
        if watch:
            await self._retrying.until_answered(lambda: self._store.exists(znodes.CONTROLLER, watch=True))
        node = await self._retrying.get_or_none(znodes.CONTROLLER)
        epoch = znodes.decode_controller_epoch(fence.data)
        if node is None:
            return ControllerLease(NO_LEADER, epoch, fence.stat.version)
        return ControllerLease(znodes.decode_controller(node.data), epoch, fence.stat.version, node.stat.owner)

    async def try_become_controller(
        self, broker_id: int, lease: ControllerLease, *, replace_controller: bool = False
    ) -> ControllerLease | None:
        """The election: one multi raises the epoch and takes the seat. None if somebody else was first.

        With `replace_controller` the multi also removes the old holder, who was found dead after `lease` was read.
        """
        epoch = lease.epoch + 1
        operations: list[Operation] = [
            Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), lease.epoch_version)
        ]
        if replace_controller:
            operations.append(Delete(znodes.CONTROLLER))
        data = znodes.encode_controller(broker_id, self._clock.now_ms())
        operations.append(Create(znodes.CONTROLLER, data, ephemeral=True))
        try:
            await self._store.multi(operations)
        except TransactionFailedError:
            return None
        except OutcomeUnknownError:
            return await self._lease_if_elected(broker_id, epoch, lease.epoch_version + 1)
        return ControllerLease(broker_id, epoch, lease.epoch_version + 1, self._store.session_id)

    async def resign_controller(self, lease: ControllerLease) -> None:
        """Resigns, if the seat is still this one."""
        try:
            await self._fenced(lease.epoch_version, [Delete(znodes.CONTROLLER)])
        except (TransactionFailedError, ControllerFenced):
            return

    async def _lease_if_elected(self, broker_id: int, epoch: int, epoch_version: int) -> ControllerLease | None:
        fence = await self._retrying.until_answered(lambda: self._store.get(znodes.CONTROLLER_EPOCH))
        node = await self._retrying.get_or_none(znodes.CONTROLLER)
        mine = (
            node is not None
            and node.stat.owner == self._store.session_id
            and fence.stat.version == epoch_version
            and znodes.decode_controller_epoch(fence.data) == epoch
        )
        return ControllerLease(broker_id, epoch, epoch_version, self._store.session_id) if mine else None

    # --- partition states ----------------------------------------------------------------------------

    async def read_state(self, tp: TopicPartition) -> VersionedState | None:
        """A partition's state, None where there is none. MalformedZnodeError."""
        node = await self._retrying.get_or_none(znodes.state_path(tp))
        if node is None:
            return None
        return VersionedState(znodes.decode_state(node.data), node.stat.version, node.stat.mzxid)

    async def read_states(
        self, tps: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, VersionedState], set[TopicPartition]]:
        """The states that exist, read side by side, and whose state nobody can read."""
        found: dict[TopicPartition, VersionedState] = {}
        unread: set[TopicPartition] = set()

        async def read(tp: TopicPartition) -> None:
            try:
                if (state := await self.read_state(tp)) is not None:
                    found[tp] = state
            except znodes.MalformedZnodeError as error:
                log.error("%s: %s", tp, error)
                unread.add(tp)

        wanted = list(tps)
        await asyncio.gather(*map(read, wanted))
        return {tp: found[tp] for tp in wanted if tp in found}, unread

    async def read_topics_with_states(
        self, names: Iterable[str]
    ) -> tuple[dict[str, TopicAssignment], dict[TopicPartition, VersionedState]]:
        """The topics that exist, and the states of those of their partitions that have one.

        A topic with a state that nobody can read is left out: a partition without a state would begin anew.
        """
        topics = await self.read_topics(names)
        states, unread = await self.read_states(tp for topic in topics.values() for tp in topic.topic_partitions())
        for topic in {tp.topic for tp in unread}:
            del topics[topic]
        return topics, {tp: state for tp, state in states.items() if tp.topic in topics}

    async def change_isr(self, tp: TopicPartition, new: PartitionState, partition_epoch: int) -> int:
        """A leader's compare-and-set of its partition's state; returns the new partition_epoch.

        StateConflict tells what stands there instead. OutcomeUnknownError: no answer, or it was lost and nothing is
        written; the larger ISR must go on counting, and the change be tried again with the same partition_epoch. Only
        by who still wants it: versions begin anew with a topic of the same name.
        """
        data = znodes.encode_state(new)
        return await self._compare_and_set(
            tp, new, partition_epoch, lambda: self._store.set(znodes.state_path(tp), data, partition_epoch), again=False
        )

    async def write_state(
        self, tp: TopicPartition, new: PartitionState, partition_epoch: int, epoch_version: int
    ) -> int:
        """A controller's write of a state (of a new one with partition_epoch −1); returns the new partition_epoch.

        Stands on the controller's fence and on the state's own version. StateConflict, ControllerFenced,
        OutcomeUnknownError.
        """
        data = znodes.encode_state(new)
        path = znodes.state_path(tp)

        async def write() -> int:
            try:
                if partition_epoch == NO_VERSION:
                    await self._create_state(tp, data, epoch_version)
                else:
                    await self._fenced(epoch_version, [Set(path, data, partition_epoch)])
            except TransactionFailedError as error:
                raise error.cause from error
            return partition_epoch + 1

        return await self._compare_and_set(tp, new, partition_epoch, write)

    async def _create_state(self, tp: TopicPartition, data: bytes, epoch_version: int) -> None:
        create = Create(znodes.state_path(tp), data)
        try:
            await self._fenced(epoch_version, [Create(znodes.partition_path(tp)), create])
        except TransactionFailedError as error:
            parent_exists = error.index == 1 and isinstance(error.cause, NodeExistsError)
            no_parents = error.index == 1 and isinstance(error.cause, NoNodeError)
            if not (parent_exists or no_parents):
                raise
            if no_parents:  # a topic whose assignment somebody else wrote
                await self._retrying.ensure(znodes.partitions_path(tp.topic))
                await self._retrying.ensure(znodes.partition_path(tp))
            await self._fenced(epoch_version, [create])

    async def _compare_and_set(
        self,
        tp: TopicPartition,
        new: PartitionState,
        expected: int,
        write: Callable[[], Awaitable[int]],
        *,
        again: bool = True,
    ) -> int:
        data = znodes.encode_state(new)
        async with self._retrying.deadline():
            while True:
                unknown: OutcomeUnknownError | None = None
                try:
                    return await write()
                except (BadVersionError, NodeExistsError, NoNodeError):
                    pass
                except OutcomeUnknownError as error:
                    unknown = error
                    await self._retrying.pause()
                actual = await self.read_state(tp)
                found = NO_VERSION if actual is None else actual.partition_epoch
                # The encoded states are compared, because `==` ignores `eligible`.
                if actual is not None and (found, znodes.encode_state(actual.state)) == (expected + 1, data):
                    return expected + 1
                if unknown is None or found != expected:
                    raise StateConflict(tp, actual)
                if not again:
                    raise unknown

    # --- notifications -------------------------------------------------------------------------------

    async def notify_isr_change(self, tps: Iterable[TopicPartition]) -> None:
        """Tells the controller whose ISR was changed, so that metadata follows. A repetition does no harm."""
        await self._notify(f"{znodes.ISR_CHANGE_NOTIFICATION}/isr_change_", znodes.encode_isr_change(tps))

    async def read_isr_changes(self, *, watch: bool = False) -> dict[str, list[TopicPartition]]:
        """The notifications that wait, by path."""
        found = await self._notifications(znodes.ISR_CHANGE_NOTIFICATION, znodes.decode_isr_change, watch=watch)
        return {path: tps or [] for path, tps in found.items()}

    async def notify_log_dir_failure(self, broker_id: int) -> None:
        """Tells the controller that replicas of this broker are offline. A repetition does no harm."""
        path = f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_"
        await self._notify(path, znodes.encode_log_dir_failure(broker_id))

    async def read_log_dir_failures(self, *, watch: bool = False) -> dict[str, int | None]:
        """The brokers of the notifications that wait, by path; None for one that cannot be read."""
        return await self._notifications(znodes.LOG_DIR_EVENT_NOTIFICATION, znodes.decode_log_dir_failure, watch=watch)

    async def read_config_changes(self, *, watch: bool = False) -> dict[str, str | None]:
        """The topics whose settings were changed, by the path of the notification; None: it is about no topic."""
        return await self._notifications(znodes.CONFIG_CHANGES, znodes.decode_config_change, watch=watch)

    async def drop_notifications(self, paths: Iterable[str], epoch_version: int) -> None:
        """Removes notifications that were acted upon."""
        for path in paths:
            try:
                await self._fenced(epoch_version, [Delete(path)])
            except TransactionFailedError:
                continue

    async def _notify(self, path: str, data: bytes) -> None:
        await self._retrying.until_answered(lambda: self._store.create(path, data, sequence=True))

    async def _notifications(self, parent: str, decode: Callable[[bytes], T], *, watch: bool) -> dict[str, T | None]:
        found: dict[str, T | None] = {}
        for path, data in (await self._retrying.children(parent, watch=watch)).items():
            try:
                found[path] = decode(data)
            except znodes.MalformedZnodeError:
                found[path] = None
        return found
