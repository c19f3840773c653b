"""The partitions of `__consumer_offsets` that this broker coordinates: loaded with leadership, dropped with it.

    closed → loading    it leads in a new epoch: a thread reads what is below the log end of that moment
           → loaded     all of that is read, and is committed: nothing that is told from here on can be taken back
           → closed     the epoch is over, here, in ZooKeeper or on the disk; whoever waits gets NOT_COORDINATOR

A shard belongs to one epoch. What a thread brings for another one is thrown away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from cluster.groups.group import GroupSettings
from node.groups.loader import Loaded
from node.groups.shard import HostedGroup, Shard
from node.purgatory.delayed_produce import DelayedProduce, PendingAppend
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.runtime.latency_histogram import LatencyHistogram
from tidelog.errors import BrokerError, CorruptMessageError, OffsetOutOfRangeError
from tidelog.protocol.messages import ProducePartitionResponse
from tidelog.quantities import count_of

log = logging.getLogger(__name__)

#: Read at once: so long the loop is busy with it, a fraction of a millisecond, where the file is in the page cache.
CHUNK_BYTES = 1 << 20
#: Groups that are taken over before other work gets a turn of the loop.
_TURN = 64
#: After a load that failed.
RETRY_S = 1.0
#: How long a load waits at a time until what it has read is committed.
_COMMITTED_WAIT_MS = 60_000
_COMMITTED_RETRY_S = 0.1


class Shards:
    """By partition.

    on_loaded    a group was taken over that has members, or had some
    on_closed    a shard is closed; its groups are to be told
    on_ready     all groups of a shard were taken over
    load_times   how long those loads took that came to their end
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        group_settings: GroupSettings,
        *,
        on_loaded: Callable[[Shard, HostedGroup], None],
        on_closed: Callable[[Shard], None],
    ) -> None:
        self._replicas = replicas
        self._group_settings = group_settings
        self._on_loaded = on_loaded
        self._on_closed = on_closed
        self.on_ready: Callable[[Shard], None] = lambda shard: None
        self._shards: dict[int, Shard] = {}
        self._loads: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(1)
        self.load_times = LatencyHistogram()

    def __iter__(self) -> Iterator[Shard]:
        return iter(list(self._shards.values()))

    def get(self, partition: int) -> Shard | None:
        """The shard of a partition that this broker leads."""
        return self._shards.get(partition)

    def role_changed(self, replica: Replica) -> None:
        """This replica of the topic leads in another epoch, or leads no more."""
        tp = replica.topic_partition
        before = self._shards.get(tp.partition)
        if before is not None and not (before.replica is replica and before.leads):
            del self._shards[tp.partition]
            before.open = False
            self._on_closed(before)
            before = None
        if before is None and replica.partition.is_leader and not replica.offline:
            shard = self._shards[tp.partition] = Shard(replica)
            task = asyncio.get_running_loop().create_task(self._load(shard), name=f"load-{tp}")
            self._loads.add(task)
            task.add_done_callback(self._loads.discard)

    def close(self) -> None:
        """Nothing is loaded any more."""
        for task in self._loads:
            task.cancel()

    # --- loading -------------------------------------------------------------------------------------

    async def _load(self, shard: Shard) -> None:
        begun_ms = self._replicas.clock.monotonic_ms()
        tp, end = shard.topic_partition, shard.replica.log.log_end_offset
        told = False
        while shard.leads:
            try:
                async with self._turn:
                    loaded = await self._read(shard, end)
                if loaded is None or not await self._until_committed(shard, end):
                    return
                await self._take_over(shard, loaded)
            except BrokerError as error:
                self._replicas.code_of(error, tp)
                if isinstance(error, CorruptMessageError) and shard.leads:
                    self._replicas.report_damage(shard.replica)
                # Said once: it is tried again every second, and may stay as it is until somebody mends the disk.
                level, told = (logging.DEBUG if told else logging.ERROR), True
                log.log(level, "%s: what groups have committed cannot be read: %s", tp, error)
            except Exception:
                log.exception("%s: loading failed", tp)
            else:
                break
            await asyncio.sleep(RETRY_S)
        if shard.leads:
            took_ms = self._replicas.clock.monotonic_ms() - begun_ms
            self.load_times.add(took_ms * 1_000_000)
            # A partition without groups is read at once, so that no client has waited for it.
            level = logging.INFO if shard.groups else logging.DEBUG
            log.log(level, "%s: coordinates %s, loaded in %d ms", tp, count_of(len(shard.groups), "group"), took_ms)
            self.on_ready(shard)

    async def _read(self, shard: Shard, end: int) -> Loaded | None:
        """All that is below `end`; None where the shard is closed meanwhile."""
        log_, partition = shard.replica.log, shard.replica.partition
        loaded = Loaded(skip_damaged=len(partition.replicas) == 1)
        offset = log_.log_start_offset
        while shard.leads and offset < end:
            try:
                data = log_.read(offset, CHUNK_BYTES, end)
            except OffsetOutOfRangeError:
                if offset >= log_.log_start_offset:
                    raise
                offset = log_.log_start_offset  # its beginning was deleted meanwhile
                continue
            if not len(data):
                break
            read_to = await self._replicas.offload(loaded.read, data)
            if read_to <= offset:
                raise CorruptMessageError(f"no whole batch at offset {offset}")
            offset = read_to
        if loaded.skipped:
            told = ", ".join(f"{count} × {why}" for why, count in loaded.skipped.items())
            log.warning("%s: records that nobody here understands were skipped: %s", shard.topic_partition, told)
        return loaded if shard.leads else None

    async def _until_committed(self, shard: Shard, end: int) -> bool:
        """Whether all below `end` is, while the shard is open. What is not could still be lost with this leader."""
        replica = shard.replica
        while shard.leads and replica.partition.high_watermark < end:
            due_ms = self._replicas.clock.monotonic_ms() + _COMMITTED_WAIT_MS
            pending = PendingAppend(0, replica, shard.leader_epoch, end)
            waiting = DelayedProduce(due_ms, [ProducePartitionResponse(*shard.topic_partition, 0)], [pending])
            self._replicas.purgatories.produces.try_complete_else_watch(waiting, [shard.topic_partition])
            await waiting.response
            if replica.partition.high_watermark < end:
                await asyncio.sleep(_COMMITTED_RETRY_S)  # too many wait there, or it takes very long
        return shard.leads

    async def _take_over(self, shard: Shard, loaded: Loaded) -> None:
        for count, group_id in enumerate(loaded.group_ids(), 1):
            hosted = shard.groups[group_id] = HostedGroup(group_id, self._group_settings)
            hosted.offsets = loaded.offsets.get(group_id, hosted.offsets)
            if record := loaded.groups.get(group_id):
                hosted.restore(record, self._replicas.clock.monotonic_ms())
                self._on_loaded(shard, hosted)
            if count % _TURN == 0:
                await asyncio.sleep(0)
                if not shard.leads:
                    return
        shard.loaded = True
