"""The reads and writes of brokers and the controller in ZooKeeper (Kafka: KafkaZkClient).

No write is repeated blindly. After an unknown outcome the znode is read again and compared with the intended content.
Every read and write gives up after `time_limit_ms`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from cluster.state import (
    BrokerRegistration,
    ControllerLease,
)
from cluster.uuids import random_uuid
from cluster.zookeeper import znodes
from cluster.zookeeper.broker_configs import BrokerConfigs
from cluster.zookeeper.state_znodes import StateZnodes
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
from cluster.zookeeper.write_conflicts import BrokerIdTaken, ControllerFenced
from cluster.zookeeper.zookeeper_offsets import ZooKeeperOffsets
from tidelog.clock import Clock
from tidelog.model import NO_LEADER, Endpoint, TopicPartition

log = logging.getLogger(__name__)

PRODUCER_ID_BLOCK_SIZE = 1000

T = TypeVar("T")


class ZkClient(StateZnodes):
    """The cluster's operations over one store.

    `time_limit_ms` bounds each read, and each write together with the reads that decide its outcome; then
    OutcomeUnknownError is raised. A method of several reads and writes may take longer. Methods with an `epoch_version`
    raise ControllerFenced if `/controller_epoch` has another version.
    """

    def __init__(self, store: Store, clock: Clock, *, time_limit_ms: int = 6000) -> None:
        super().__init__(store, time_limit_ms)
        self._clock = clock

    @property
    def store(self) -> Store:
        """Return the underlying ZooKeeper session."""
        return self._store

    @property
    def zookeeper_offsets(self) -> ZooKeeperOffsets:
        """Return the offsets that groups have committed into ZooKeeper."""
        return ZooKeeperOffsets(self._store, self._retrying)

    @property
    def broker_configs(self) -> BrokerConfigs:
        """Return access to the brokers' settings that take effect while brokers run."""
        return BrokerConfigs(self._store, self._retrying)

    # --- the cluster ---------------------------------------------------------------------------------

    async def ensure_paths(self) -> None:
        """Create the persistent parent znodes, and `/controller_epoch` with 0, unless they exist.

        The first broker of a new cluster must do so.
        """
        for path in znodes.PERSISTENT_PATHS:
            await self._retrying.ensure(path)
        await self._retrying.ensure(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))

    async def cluster_id(self, rng: random.Random | None = None) -> str:
        """Return the cluster's id. If there is none yet, create a random one first."""
        fresh = random_uuid(rng) if rng else random_uuid()
        await self._retrying.ensure(znodes.CLUSTER_ID, znodes.encode_cluster_id(fresh))
        return znodes.decode_cluster_id(
            (await self._retrying.until_answered(lambda: self._store.get(znodes.CLUSTER_ID))).data
        )

    async def next_producer_id_block(self, broker_id: int) -> range:
        """Return a block of 1000 producer ids that no other broker ever gets.

        Ids may be skipped, but are never shared.
        """
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
                    # After an unknown outcome take a fresh block, because skipping ids is harmless.
                    await self._retrying.pause()
                else:
                    return block

    # --- brokers -------------------------------------------------------------------------------------

    async def register_broker(self, registration: BrokerRegistration, previous_session: int = 0) -> int:
        """Create `/brokers/ids/N` and return its czxid, the broker epoch.

        The same transaction raises the version of `/brokers/ids`, which counts all registrations (see
        `_change_registration`). An old registration of this process (of `previous_session` or of this session) is
        removed first. Another process's registration is waited for as long as its session may need to end; then
        BrokerIdTaken is raised. The controller may change the new registration before this call has read it.
        """
        path = znodes.broker_path(registration.broker_id)
        data = znodes.encode_broker(registration, self._clock.now_ms())
        deadline_ms = self._clock.monotonic_ms() + self._store.session_timeout_ms
        while True:
            created = False
            try:
                await self._store.multi([Create(path, data, ephemeral=True), Set(znodes.BROKER_IDS, b"")])
            except TransactionFailedError as error:
                if not isinstance(error.cause, NodeExistsError):
                    raise error.cause from error
            except OutcomeUnknownError:
                await self._retrying.pause()
            else:
                created = True
            node = await self._retrying.get_or_none(path)
            if node is None:
                continue
            if node.stat.owner == self._store.session_id and (created or node.data == data):
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
        """Remove this process's registration, if its epoch is still `broker_epoch`.

        Other brokers then need not wait for the session to end.
        """
        path = znodes.broker_path(broker_id)
        await self._change_registration(
            broker_id, broker_epoch, lambda node: Delete(path, node.stat.version), self._store.multi
        )

    async def is_registered(self, broker_id: int, broker_epoch: int, *, watch: bool = False) -> bool:
        """Return whether the registration with this epoch exists. A watch fires when that may have changed."""
        stat = await self._retrying.until_answered(
            lambda: self._store.exists(znodes.broker_path(broker_id), watch=watch)
        )
        return stat is not None and stat.czxid == broker_epoch

    async def read_broker(self, broker_id: int, *, watch: bool = False) -> BrokerRegistration | None:
        """Return one registration, or None if there is none or it cannot be read.

        A watch fires when the registration changes or ends.
        """
        node = await self._retrying.get_or_none(znodes.broker_path(broker_id), watch=watch)
        try:
            return None if node is None else znodes.decode_broker(broker_id, node.data, node.stat.czxid)
        except znodes.MalformedZnodeError as error:
            log.warning("broker %d: its registration is unreadable, and is taken for absent: %s", broker_id, error)
            return None

    async def read_brokers(self, *, watch: bool = False) -> dict[int, BrokerRegistration]:
        """Return all registered brokers by id; unreadable registrations are left out.

        A watch of `/brokers/ids` fires when a broker registers or its registration ends, and one of `/brokers/ids/N`
        when that registration changes or ends.
        """
        names = await self._retrying.until_answered(lambda: self._store.children(znodes.BROKER_IDS, watch=watch))
        found = await asyncio.gather(*(self.read_broker(int(name), watch=watch) for name in names if name.isdigit()))
        return {broker.broker_id: broker for broker in found if broker is not None}

    async def fence_broker(
        self, broker_id: int, broker_epoch: int, epoch_version: int, *, found_dead_at: Endpoint | None = None
    ) -> bool:
        """Remove a dead broker's registration on behalf of the controller, if its epoch is still `broker_epoch`.

        Return True if the registration was removed, or if the answer was lost and the registration is gone. Return
        False if the registration was gone, or newer, before. Also return False if its replication endpoint is not
        `found_dead_at` (None: any), because a broker that has moved to another address does not answer at the old one.
        ControllerFenced.
        """
        path = znodes.broker_path(broker_id)

        def removal(node: Node) -> Operation | None:
            if found_dead_at is not None:
                with suppress(znodes.MalformedZnodeError):
                    if znodes.decode_broker(broker_id, node.data, broker_epoch).replication_endpoint != found_dead_at:
                        return None
            return Delete(path, node.stat.version)

        return await self._change_registration(
            broker_id, broker_epoch, removal, lambda operations: self._fenced(epoch_version, operations)
        )

    async def change_addresses(self, broker_id: int, broker_epoch: int, listeners: Mapping[str, Endpoint]) -> bool:
        """Replace the addresses in this process's registration, if its epoch is still `broker_epoch`.

        Return whether the registration has the addresses now: False if it is gone, newer or unreadable. All other
        fields stay, including a mark that the controller clears meanwhile.
        """
        path, has_them = znodes.broker_path(broker_id), False

        def with_addresses(node: Node) -> Operation | None:
            nonlocal has_them
            registration = znodes.decode_broker(broker_id, node.data, broker_epoch)
            has_them = registration.listeners == listeners
            if has_them:
                return None
            data = znodes.encode_broker(replace(registration, listeners=listeners), self._clock.now_ms())
            return Set(path, data, node.stat.version)

        async def commit(operations: Sequence[Operation]) -> None:
            nonlocal has_them
            await self._store.multi(operations)
            has_them = True

        try:
            await self._change_registration(broker_id, broker_epoch, with_addresses, commit)
        except znodes.MalformedZnodeError as error:
            log.warning("broker %d: its registration is unreadable, so its addresses stay: %s", broker_id, error)
        return has_them

    async def clear_possibly_short(self, broker_id: int, broker_epoch: int, epoch_version: int) -> None:
        """Clear the mark `possibly_short` of a registration on behalf of the controller. ControllerFenced.

        Do nothing if the registration's epoch is not `broker_epoch`, or if it has no such mark.
        """
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
        """Commit the operation that `change` returns for the registration with this epoch.

        Return True if the operation was committed, or may have been: an answer was lost, and the registration has
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

    # --- the controller election ---------------------------------------------------------------------

    async def read_controller(self, *, watch: bool = False) -> ControllerLease:
        """Return the current controller (−1: none). A watch fires when `/controller` is created, changed or deleted.

        The controller epoch is read first, so that it is never newer than the controller.
        """
        fence = await self._retrying.until_answered(lambda: self._store.get(znodes.CONTROLLER_EPOCH))
        # The watch is set by `exists`, because `get` sets no watch while `/controller` does not exist.
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
        """Raise the controller epoch and create `/controller` in one multi. Return the new lease.

        Return None if the multi was refused because the epoch or `/controller` has changed, also if that answer was
        lost. With `replace_controller` the multi also removes the old controller, found dead after `lease` was read.
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
        """Remove `/controller` if the controller epoch is still that of this lease.

        The attempt is made once. OutcomeUnknownError.
        """
        try:
            await self._fenced(lease.epoch_version, [Delete(znodes.CONTROLLER)])
        except (TransactionFailedError, ControllerFenced):
            return

    async def _lease_if_elected(self, broker_id: int, epoch: int, epoch_version: int) -> ControllerLease | None:
        """Return the lease if this session won the election whose answer was lost, or None.

        The session, the controller epoch and its version must all match, because another process of this broker may be
        the controller.
        """
        fence = await self._retrying.until_answered(lambda: self._store.get(znodes.CONTROLLER_EPOCH))
        node = await self._retrying.get_or_none(znodes.CONTROLLER)
        mine = (
            node is not None
            and node.stat.owner == self._store.session_id
            and fence.stat.version == epoch_version
            and znodes.decode_controller_epoch(fence.data) == epoch
        )
        return ControllerLease(broker_id, epoch, epoch_version, self._store.session_id) if mine else None

    # --- notifications -------------------------------------------------------------------------------

    async def notify_isr_change(self, tps: Iterable[TopicPartition]) -> None:
        """Create a notification for the controller of partitions whose ISR has changed, so that metadata follows.

        Repeated until answered, so that several notifications may exist; a repetition is harmless.
        """
        await self._notify(f"{znodes.ISR_CHANGE_NOTIFICATION}/isr_change_", znodes.encode_isr_change(tps))

    async def read_isr_changes(self, *, watch: bool = False) -> dict[str, list[TopicPartition]]:
        """Return the partitions of the pending ISR change notifications, by path; [] for an unreadable one."""
        found = await self._notifications(znodes.ISR_CHANGE_NOTIFICATION, znodes.decode_isr_change, watch=watch)
        return {path: tps or [] for path, tps in found.items()}

    async def notify_log_dir_failure(self, broker_id: int) -> None:
        """Notify the controller that replicas of this broker are offline. A repetition is harmless."""
        path = f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_"
        await self._notify(path, znodes.encode_log_dir_failure(broker_id))

    async def read_log_dir_failures(self, *, watch: bool = False) -> dict[str, int | None]:
        """Return the brokers of the pending log directory notifications, by path; None if one cannot be read."""
        return await self._notifications(znodes.LOG_DIR_EVENT_NOTIFICATION, znodes.decode_log_dir_failure, watch=watch)

    async def read_config_changes(self, *, watch: bool = False) -> dict[str, str | None]:
        """Return the topics whose settings were changed, by the notification's path.

        None if a notification is not about a topic or cannot be read.
        """
        return await self._notifications(znodes.CONFIG_CHANGES, znodes.decode_config_change, watch=watch)

    async def drop_notifications(self, paths: Iterable[str], epoch_version: int) -> None:
        """Remove notifications that have been handled; no error if one is gone. ControllerFenced."""
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
