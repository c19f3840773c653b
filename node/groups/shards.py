"""The partitions of `__consumer_offsets` that this broker coordinates: loaded after an election, then dropped.

    closed → loading    the broker leads in a new leader epoch: a thread reads all records below the current log end
           → loaded     all these records are read and committed, so that no answer from here on is taken back later
           → closed     the epoch is over; requests that wait are answered with NOT_COORDINATOR

A shard belongs to one leader epoch. Results of a thread for another epoch are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from cluster.groups.group import GroupSettings
from node.groups.loader import Loaded
from node.groups.shard import HostedGroup, Shard
from node.replication.delayed_produce import DelayedProduce, PendingAppend
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.runtime.latency_histogram import LatencyHistogram
from tidelog.errors import BrokerError, CorruptMessageError, OffsetOutOfRangeError
from tidelog.protocol.messages import ProducePartitionResponse
from tidelog.quantities import count_of

log = logging.getLogger(__name__)

#: Bytes that are read at once. The read blocks the loop for a fraction of a millisecond if the page cache has the file.
CHUNK_BYTES = 1 << 20
#: Groups that are installed before other work runs on the loop.
_GROUPS_AT_ONCE = 64
#: The pause after a load that failed.
RETRY_S = 1.0
#: The longest single wait of a load until the records that it has read are committed.
_COMMITTED_WAIT_MS = 60_000
_COMMITTED_RETRY_S = 0.1


class Shards:
    """The shards, by partition.

    on_loaded    called for each group that was restored from its record, before the shard is ready
    on_closed    called when a shard is closed, so that the owner closes its groups
    on_ready     called when all groups of a shard are loaded
    load_times   the durations of completed loads
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        group_settings: GroupSettings,
        *,
        on_loaded: Callable[[Shard, HostedGroup], None],
        on_closed: Callable[[Shard], None],
        on_ready: Callable[[Shard], None],
    ) -> None:
        self._replicas = replicas
        self._group_settings = group_settings
        self._on_loaded = on_loaded
        self._on_closed = on_closed
        self._on_ready = on_ready
        self._shards: dict[int, Shard] = {}
        self._loads: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Semaphore(1)
        self.load_times = LatencyHistogram()

    def __iter__(self) -> Iterator[Shard]:
        return iter(list(self._shards.values()))

    def get(self, partition: int) -> Shard | None:
        """Return the partition's shard, loaded or not, or None if this broker does not lead the partition."""
        return self._shards.get(partition)

    def role_changed(self, replica: Replica) -> None:
        """Close the replica's shard if its leader epoch has ended. Open a new one, and begin to load it, if it leads.

        An offline replica gets no shard.
        """
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
        """Cancel all loads, and return at once."""
        for task in self._loads:
            task.cancel()

    # --- loading -------------------------------------------------------------------------------------

    async def _load(self, shard: Shard) -> None:
        begun_ms = self._replicas.clock.monotonic_ms()
        tp, end = shard.topic_partition, shard.replica.log.log_end_offset
        logged = False
        while shard.leads:
            try:
                async with self._one_at_a_time:
                    loaded = await self._read(shard, end)
                if loaded is None or not await self._until_committed(shard, end):
                    return
                await self._install(shard, loaded)
            except BrokerError as error:
                self._replicas.code_of(error, tp)
                if isinstance(error, CorruptMessageError) and shard.leads:
                    self._replicas.report_damage(shard.replica)
                # Logged once, because the load is tried again every second until an operator has repaired the disk.
                level, logged = (logging.DEBUG if logged else logging.ERROR), True
                log.log(level, "%s: committed offsets cannot be loaded: %s", tp, error)
            except Exception:
                log.exception("%s: loading failed; trying again", tp)
            else:
                break
            await asyncio.sleep(RETRY_S)
        if shard.leads:
            took_ms = self._replicas.clock.monotonic_ms() - begun_ms
            self.load_times.add(took_ms * 1_000_000)
            # A partition without groups is loaded so fast that no client has waited for it.
            level = logging.INFO if shard.groups else logging.DEBUG
            log.log(level, "%s: coordinates %s, loaded in %d ms", tp, count_of(len(shard.groups), "group"), took_ms)
            self._on_ready(shard)

    async def _read(self, shard: Shard, end: int) -> Loaded | None:
        """Return the contents of all records below `end`, or None if the shard is closed meanwhile."""
        loaded = Loaded(skip_damaged=len(shard.replica.partition.replicas) == 1)
        offset = shard.replica.log.log_start_offset
        while shard.leads and offset < end:
            log_ = shard.replica.log  # another log once the replica has moved to another log directory
            try:
                data = log_.read(offset, CHUNK_BYTES, end)
            except OffsetOutOfRangeError:
                if offset >= log_.log_start_offset:
                    raise
                offset = log_.log_start_offset  # the first records were deleted meanwhile
                continue
            if not len(data):
                break
            read_to = await self._replicas.offload(loaded.read, data)
            if read_to <= offset:
                raise CorruptMessageError(f"there is no complete batch at offset {offset}")
            offset = read_to
        if loaded.skipped:
            counts = ", ".join(f"{count} × {why}" for why, count in loaded.skipped.items())
            log.warning("%s: records that cannot be decoded were skipped: %s", shard.topic_partition, counts)
        return loaded if shard.leads else None

    async def _until_committed(self, shard: Shard, end: int) -> bool:
        """Wait until all records below `end` are committed, and return whether the shard is still open.

        Records that are not committed could still be lost if this leader fails.
        """
        replica = shard.replica
        while shard.leads and replica.partition.high_watermark < end:
            due_ms = self._replicas.clock.monotonic_ms() + _COMMITTED_WAIT_MS
            response = ProducePartitionResponse(*shard.topic_partition, 0)
            pending = PendingAppend(replica, shard.leader_epoch, end, response)
            waiting = DelayedProduce(due_ms, [response], {0: pending})
            self._replicas.purgatories.produces.try_complete_else_watch(waiting, [shard.topic_partition])
            await waiting.response
            if replica.partition.high_watermark < end:
                await asyncio.sleep(_COMMITTED_RETRY_S)  # the purgatory is full, or the wait has timed out
        return shard.leads

    async def _install(self, shard: Shard, loaded: Loaded) -> None:
        for count, group_id in enumerate(loaded.group_ids(), 1):
            hosted = shard.groups[group_id] = HostedGroup(group_id, self._group_settings)
            hosted.offsets = loaded.offsets.get(group_id, hosted.offsets)
            if record := loaded.groups.get(group_id):
                hosted.restore(record, self._replicas.clock.monotonic_ms())
                self._on_loaded(shard, hosted)
            if count % _GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
                if not shard.leads:
                    return
        shard.loaded = True
