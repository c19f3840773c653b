"""Implement F46–F49: missing, changed or random bytes in a log, its indexes and a broker's checkpoints."""

from __future__ import annotations

import asyncio
import os
import random
import time
from functools import partial
from pathlib import Path

from tidelog.aio.consumer import Consumer
from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord
from tidelog.errors import LocalError, TidelogError
from tidelog.history.history_files import SUFFIX, HistoryWriter
from tidelog.history.operations import Client, Read
from tidelog.model import TopicPartition
from tidelog.records.header import HEADER_BYTES, BatchHeader, iter_headers
from verify.chaos.fault import Availability, Evidence, Need, Target, View
from verify.chaos.faults.processes import BrokerFault, clean_marker, leader_of_one
from verify.chaos.faults.support import bite_detection, layout
from verify.chaos.faults.support.broker_log_reader import BrokerLogReader
from verify.chaos.faults.support.fault_base import FaultBase, Timing, leaders, of, wait_until
from verify.chaos.faults.support.topic_settings import alter_topics
from verify.chaos.payload import read_id

_READ_S = 5.0
_SHORT_SEGMENT, _CLOSED_S = "16384", 10.0
#: The log line of a broker whose log lost records at its end.
_SHORTER = r"cut [1-9]\d* bytes|before its high watermark|the recovery point is offset \d+, but the log ends at"

#: A partition, its leader, and a closed segment of its log.
Closed = tuple[TopicPartition, int, Path]


class Damage(BrokerFault):
    """Damage to the files of a leader that was killed. The leader starts with these files when the fault is healed.

    If the broker has no file to damage, `inject` raises LocalError.
    """

    needs = frozenset({Need.PROCESSES, Need.RESTARTS, Need.FILES, Need.OWN})
    lasts_ms = (200, 1_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._damaged: dict[Path, bytes] = {}
        #: Those of the damaged files to which the broker appends. Growth of such a file does not prove that it was
        #: repaired.
        self._appended: set[Path] = set()
        self._repaired = 0

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.refused_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        view = await target.view()
        victim, victim_name = leader_of_one(view, rng)
        self.on_heal(self._look_again)
        await self.kill(target, victim)
        await asyncio.to_thread(self.damage, target.broker_dir(victim), target.tps, rng)
        if not self._damaged:
            raise LocalError(f"broker {victim} has no such file")
        return f"{victim_name}: {self.name}, {len(self._damaged)} files"

    def damage(self, directory: Path, tps: tuple[TopicPartition, ...], rng: random.Random) -> None:
        """Damage files of a stopped broker's data directory, in the logs of `tps` or beside them. Remember each damaged
        file.
        """
        raise NotImplementedError

    def change(self, path: Path, content: bytes | None) -> None:
        """Replace the content of the file; None removes the file. Remember the file unless it already
        has this content.
        """
        before = path.read_bytes()
        if before == content:
            return
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        self._damaged[path] = content or b""

    async def _look_again(self) -> None:
        self._repaired = await asyncio.to_thread(_changed_since, self._damaged, self._appended)

    def bit(self, evidence: Evidence) -> str | None:
        if not self._repaired or not bite_detection.registered_anew(evidence, self.victims):
            return None
        return f"{self._repaired} of {len(self._damaged)} damaged files were rewritten"


class TailCut(Damage):
    """Truncated logs of a machine that went down: the last segment of each log under load lacks its last 1, 60 or 3,000
    bytes.

    The marker of a clean shutdown is removed and the boot id is replaced too, so that the replicas are not trusted
    (KIP-101, KIP-279).
    """

    row, name = "F46", "end of a log cut off"
    lengths = (1, 60, 3_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._said: BrokerLogReader | None = None
        self._missed: list[str] = []

    def damage(self, directory: Path, tps: tuple[TopicPartition, ...], rng: random.Random) -> None:
        clean_marker(directory).unlink(missing_ok=True)
        layout.forget_boot(directory)
        for tp in tps:
            found = layout.segments(directory / str(tp))
            if found and (size := found[-1].stat().st_size):
                os.truncate(found[-1], max(0, size - rng.choice(self.lengths)))
                self._damaged[found[-1]] = b""

    async def inject(self, target: Target, rng: random.Random) -> str:
        what = await super().inject(target, rng)
        self._said = BrokerLogReader(target.broker_log(self.victims[0]))
        return what

    async def _look_again(self) -> None:
        if self._said is not None:
            self._missed = await asyncio.to_thread(self._said.lines, _SHORTER)

    def bit(self, evidence: Evidence) -> str | None:
        return f"broker {self.victims[0]} logged: {self._missed[0]}" if self._missed else None


# --- indexes ---------------------------------------------------------------------------------------------------


class IndexDamage(Damage):
    """Damaged offset and time indexes; this class deletes all of them. Look-ups must be exact nevertheless, because the
    broker rebuilds an index or verifies its entries.
    """

    row, name = "F48", "indexes deleted"

    async def inject(self, target: Target, rng: random.Random) -> str:
        view = await target.view()
        if not _closed_segments(target, view):
            # A rebuilt index is visible only for a segment that receives no more records.
            await _close_one(self, target, view)
        return await super().inject(target, rng)

    def damage(self, directory: Path, tps: tuple[TopicPartition, ...], rng: random.Random) -> None:
        for tp in tps:
            log = directory / str(tp)
            active = {segment.stem for segment in layout.segments(log)[-1:]}
            for path in layout.indexes(log):
                self.change(path, self.damaged(path, path.read_bytes(), rng))
                if path.stem in active:
                    self._appended.add(path)

    def damaged(self, path: Path, content: bytes, rng: random.Random) -> bytes | None:
        return None


class IndexesZeroed(IndexDamage):
    name = "indexes zeroed"

    def damaged(self, path: Path, content: bytes, rng: random.Random) -> bytes | None:
        return bytes(max(64, len(content)))


class IndexesCut(IndexDamage):
    name = "indexes cut off"

    def damaged(self, path: Path, content: bytes, rng: random.Random) -> bytes | None:
        return content[: rng.randrange(len(content))] if content else b"\1"


class IndexesRandom(IndexDamage):
    name = "indexes of random bytes"

    def damaged(self, path: Path, content: bytes, rng: random.Random) -> bytes | None:
        return rng.randbytes(max(96, len(content)))


class IndexesWrong(IndexDamage):
    """Indexes whose entries increase as required, but are wrong: the offsets in all of them, the positions in offset
    indexes, and the timestamps in time indexes.
    """

    name = "indexes with wrong positions"

    def damaged(self, path: Path, content: bytes, rng: random.Random) -> bytes | None:
        count = max(3, len(content) // 8)
        if path.suffix == ".index":
            return b"".join((7 + 5 * n).to_bytes(4, "big") + (11 + 97 * n).to_bytes(4, "big") for n in range(count))
        return b"".join((1_000 + 7 * n).to_bytes(8, "big") + (3 + 5 * n).to_bytes(4, "big") for n in range(count))


# --- checkpoints -----------------------------------------------------------------------------------------------


class CheckpointDamage(Damage):
    """Damaged checkpoints of leader epochs, high watermarks and recovery points; this class empties them.

    The broker must not use a value above the log end.
    """

    row, name = "F49", "checkpoints emptied"

    def damage(self, directory: Path, tps: tuple[TopicPartition, ...], rng: random.Random) -> None:
        whole = [directory / layout.HIGH_WATERMARKS, directory / layout.RECOVERY_POINTS]
        for path in (*whole, *(directory / str(tp) / layout.LEADER_EPOCHS for tp in tps)):
            if path.exists():
                self.change(path, self.damaged(path, path.read_bytes(), tps, rng))

    def damaged(self, path: Path, content: bytes, tps: tuple[TopicPartition, ...], rng: random.Random) -> bytes:
        return b""


class CheckpointsCut(CheckpointDamage):
    name = "checkpoints cut in half"

    def damaged(self, path: Path, content: bytes, tps: tuple[TopicPartition, ...], rng: random.Random) -> bytes:
        return content[: len(content) // 2]


class CheckpointsRandom(CheckpointDamage):
    name = "checkpoints of random bytes"

    def damaged(self, path: Path, content: bytes, tps: tuple[TopicPartition, ...], rng: random.Random) -> bytes:
        return rng.randbytes(200)


class CheckpointsFromTheFuture(CheckpointDamage):
    name = "checkpoints from the future"

    def damaged(self, path: Path, content: bytes, tps: tuple[TopicPartition, ...], rng: random.Random) -> bytes:
        far = 10**12
        if path.name == layout.LEADER_EPOCHS:
            return f"0\n1\n1000 {far}\n".encode()
        lines = "".join(f"{tp.topic} {tp.partition} {far}\n" for tp in tps)
        return f"0\n{len(tps)}\n{lines}".encode()


# --- one bit ---------------------------------------------------------------------------------------------------


class BitFlipped(FaultBase):
    """A flipped bit in a closed segment of a running leader, flipped back when the fault is healed.

    A reader must get an error or no record, and must not receive a later record instead.
    """

    row, name = "F47", "one bit flipped in a closed segment"
    needs = frozenset({Need.PROCESSES, Need.FILES, Need.OWN})
    lasts_ms = (500, 1_500)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._noticed = self._skipped = ""
        self._flipped = -1

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.undisturbed_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        view = await target.view()
        tp, leader, segment = rng.choice(_closed_segments(target, view) or await _close_one(self, target, view))
        position, damaged = await asyncio.to_thread(_place_in_records, segment, rng)
        bit = 1 << rng.randrange(8)
        self.on_heal(partial(asyncio.to_thread, _flip, segment, position, bit))
        flipped = await asyncio.to_thread(_flip, segment, position, bit)
        self._flipped = flipped
        self._heal_steps[-1] = partial(asyncio.to_thread, _flip, segment, position, bit, flipped)
        shown = await self._read(target, tp, damaged.base_offset, rng)
        if shown and shown[0] > damaged.last_offset and await self._still_leads(target, tp, view, segment, position):
            self._skipped = f"a client that read {of(tp)} from offset {damaged.base_offset}, where a batch is damaged, "
            self._skipped += f"received offset {shown[0]}"
        return f"bit {bit:#04x} of byte {position} of {segment.name} of broker {leader}, leader of {of(tp)}"

    async def _read(self, target: Target, tp: TopicPartition, offset: int, rng: random.Random) -> list[int]:
        """Return the offsets that a client receives when it reads from `offset`, where the damaged batch begins.

        The list is empty after an error, or after 5 s without records; both count as noticed. The client's history is
        part of the run, so the checker verifies its records as those of any other reader.
        """
        name, records = f"bit-flip-{rng.getrandbits(32)}", list[ConsumerRecord]()
        async with Consumer(bootstrap_servers=target.bootstrap_servers) as consumer:
            consumer.assign([tp])
            consumer.seek(tp, offset)
            began = time.monotonic_ns()
            try:
                async with asyncio.timeout(_READ_S):
                    while not records:
                        records = (await consumer.poll(timeout_ms=500)).get(tp, [])
            except TidelogError as error:
                self._noticed = type(error).__name__
            except TimeoutError:
                self._noticed = f"no record within {_READ_S:g} s"
        offsets, ids = [record.offset for record in records], [read_id(record.value) for record in records]
        header = Client(name, request_timeout_ms=round(_READ_S * 1000), t=began)
        with HistoryWriter(target.histories / f"{name}{SUFFIX}", header) as history:
            if records:
                times = [record.timestamp for record in records]
                history.write(Read(tp, 0, -1, began, time.monotonic_ns(), offsets, ids, times))
        return offsets

    async def _still_leads(
        self, target: Target, tp: TopicPartition, before: View, segment: Path, position: int
    ) -> bool:
        """Return whether the partition still has the leader epoch of `before`, and the segment the flipped byte.

        Another leader, or a rewritten segment, may return more records.
        """
        now = await target.view()
        same = now.partitions[tp].leader_epoch == before.partitions[tp].leader_epoch
        return same and await asyncio.to_thread(_byte_at, segment, position) == self._flipped

    def broken(self, evidence: Evidence) -> str | None:
        return self._skipped or None

    def bit(self, evidence: Evidence) -> str | None:
        return f"a client that read the damaged batch got {self._noticed}" if self._noticed else None


def _closed_segments(target: Target, view: View) -> list[Closed]:
    """Return each closed segment of each partition's leader, with the partition and the leader."""
    return [
        (tp, leader, segment)
        for tp, leader in leaders(view).items()
        for segment in layout.segments(target.broker_dir(leader) / str(tp))[:-1]
    ]


async def _close_one(fault: FaultBase, target: Target, view: View) -> list[Closed]:
    """Make the longest log roll a new segment, and return the closed segments of all leaders.

    segment.bytes of its topic is small until the fault is healed. Raise LocalError if no segment is closed within 10 s.
    """

    def length(led: tuple[TopicPartition, int]) -> int:
        tp, leader = led
        return sum(each.stat().st_size for each in layout.segments(target.broker_dir(leader) / str(tp)))

    led = leaders(view)
    if not led:
        raise LocalError("no partition has a leader")
    (longest, _) = max(led.items(), key=length)
    await alter_topics(fault, target, {longest.topic}, "segment.bytes", _SHORT_SEGMENT)
    await wait_until("a leader to close a segment", lambda: _closed_segments(target, view), _CLOSED_S)
    return _closed_segments(target, view)


def _place_in_records(segment: Path, rng: random.Random) -> tuple[int, BatchHeader]:
    """Return a random position within the records of a random batch, and the header of that batch. Raise LocalError if
    the segment has no records.
    """
    # Compaction leaves batches without records.
    batches = [each for each in iter_headers(segment.read_bytes()) if each[1].size_bytes > HEADER_BYTES]
    if not batches:
        raise LocalError(f"{segment} holds no records")
    position, header = rng.choice(batches)
    return position + rng.randrange(HEADER_BYTES, header.size_bytes), header


def _flip(segment: Path, position: int, bit: int, only_if: int | None = None) -> int:
    """Flip the bits of the mask `bit` in a byte and return the new byte.

    Return −1 and change nothing if the file is missing or too short, or its byte differs from `only_if`.
    """
    try:
        with segment.open("r+b", buffering=0) as file:
            byte = os.pread(file.fileno(), 1, position)
            if not byte or only_if not in (None, byte[0]):
                return -1
            os.pwrite(file.fileno(), bytes([byte[0] ^ bit]), position)
            return byte[0] ^ bit
    except FileNotFoundError:
        return -1


def _byte_at(segment: Path, position: int) -> int:
    """Return the byte at a position, or −1 if the file is missing or shorter."""
    try:
        with segment.open("rb") as file:
            byte = os.pread(file.fileno(), 1, position)
    except FileNotFoundError:
        return -1
    return byte[0] if byte else -1


def _changed_since(damaged: dict[Path, bytes], appended: set[Path]) -> int:
    """Return how many of the damaged files exist with other content than the damage gave them.

    A file in `appended` counts only if it does not begin with that content either.
    """
    return sum(
        path.exists() and _is_anew(path.read_bytes(), content, path in appended) for path, content in damaged.items()
    )


def _is_anew(now: bytes, content: bytes, is_appended_to: bool) -> bool:
    return not now.startswith(content) if is_appended_to else now != content
