"""Inspects the small files of a log directory: checkpoints, identities and producer snapshots."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from crc32c import crc32c

from storage import partition_metadata
from storage.inspection.damaged_file_reader import DamagedFileReader
from storage.inspection.findings import Damage, Fact, Finding, Value
from storage.producers.producer_snapshots import CRC_COVERS_FROM, ENTRY, PREFIX, VERSION
from tidelog.errors import InvalidTopicError
from tidelog.model import NO_LEADER, validate_topic

_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}\Z")

_PRODUCER = (
    *("producer_id", "producer_epoch", "last_sequence", "last_offset", "offset_delta", "last_timestamp"),
    *("coordinator_epoch", "transaction_start"),
)

Parser = Callable[[list[str]], Fact]


def inspect_checkpoint(source: DamagedFileReader, parse: Parser) -> Iterator[Finding]:
    """Yield each entry of a checkpoint file as `parse` returns it, and each Damage.

    `parse` raises ValueError or InvalidTopicError for a damaged entry. A wrong version, or an unreadable number of
    entries, ends the inspection.
    """
    count: int | None = None
    found = 0
    position, text = 0, "\n"
    for number, (position, text) in enumerate(source.lines()):
        fields = text.rstrip("\n").split(" ")
        if number == 0:
            if fields != ["0"]:
                yield Damage(position, f"version {fields[0]!r} instead of 0")
                return
        elif count is None:
            if not fields[0].isdecimal():
                yield Damage(position, f"the number of entries is {fields[0]!r}")
                return
            count = int(fields[0])
        else:
            found += 1
            try:
                yield parse(fields)
            except (ValueError, InvalidTopicError) as error:
                yield Damage(position, f"damaged entry {text.rstrip()!r}: {error}")
    if not text.endswith("\n") or count is None:
        yield Damage(position if source.size else 0, "truncated: the last line has no end")
    elif found != count:
        yield Damage(source.size, f"{found} entries, but the second line says {count}")


def offset_entry(fields: list[str]) -> Fact:
    """Parse `topic partition offset`."""
    topic, partition, offset = fields
    return Fact(
        "offset", {"topic": validate_topic(topic), "partition": _natural(partition), "offset": _natural(offset)}
    )


def lost_entry(fields: list[str]) -> Fact:
    """Parse `topic partition topic-id`."""
    topic, partition, topic_id = fields
    return Fact("lost", {"topic": validate_topic(topic), "partition": _natural(partition), "topic_id": topic_id})


def leadership_entry(fields: list[str]) -> Fact:
    """Parse `topic partition topic-id leader-epoch leader partition-epoch controller-epoch`."""
    topic, partition, topic_id, epoch, leader, partition_epoch, controller_epoch = fields
    return Fact(
        "leadership",
        {
            "topic": validate_topic(topic),
            "partition": _natural(partition),
            "topic_id": topic_id,
            "leader_epoch": _natural(epoch),
            "leader": NO_LEADER if leader == str(NO_LEADER) else _natural(leader),
            "partition_epoch": _natural(partition_epoch),
            "controller_epoch": _natural(controller_epoch),
        },
    )


def inspect_epochs(source: DamagedFileReader) -> Iterator[Finding]:
    """Yield the findings of `epoch start-offset` entries, both of which must increase."""
    last = (-1, -1)

    def parse(fields: list[str]) -> Fact:
        nonlocal last
        epoch, start_offset = map(_natural, fields)
        if epoch <= last[0] or start_offset <= last[1]:
            raise ValueError("it is not above the entry before it")
        last = epoch, start_offset
        return Fact("epoch", {"epoch": epoch, "start_offset": start_offset})

    return inspect_checkpoint(source, parse)


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def inspect_partition_metadata(source: DamagedFileReader) -> Iterator[Finding]:
    fields = _pairs(source, ": ")
    yield Fact("topic", {"topic_id": fields.get("topic_id")})
    if fields.get("version") != "0":
        yield Damage(0, f"version {fields.get('version')!r} instead of 0")
    elif not _TOPIC_ID.match(fields.get("topic_id", "")):
        yield Damage(0, f"{fields.get('topic_id')!r} is not a topic id")
    elif partition_metadata.parse(bytes(source.read(0, 4096))) is None:
        yield Damage(0, "the checksum does not match the topic id")


def inspect_meta_properties(source: DamagedFileReader) -> Iterator[Finding]:
    fields = _pairs(source, "=")
    yield Fact("identity", dict[str, Value](fields))
    missing = [name for name in ("version", "broker.id", "cluster.id") if name not in fields]
    if missing:
        yield Damage(source.size, f"{missing[0]} is missing")
    elif fields["version"] != "0" or not fields["broker.id"].isdecimal():
        yield Damage(0, f"version {fields['version']!r} with broker.id {fields['broker.id']!r}")


def inspect_clean_marker(source: DamagedFileReader) -> Iterator[Finding]:
    text = bytes(source.read(0, 4096)).decode("utf-8", "replace")
    try:
        epoch = json.loads(text)["brokerEpoch"]
        yield Fact("clean shutdown", {"broker_epoch": int(epoch)})
    except (ValueError, TypeError, KeyError):
        yield Damage(0, "unexpected content in a clean-shutdown marker; a start checks only that the file exists")


def inspect_line(source: DamagedFileReader) -> Iterator[Finding]:
    """Yield each line of a file that has no other structure; nothing for an empty file such as the lock."""
    for _, text in source.lines():
        yield Fact("line", {"text": text.rstrip("\n")})


def inspect_snapshot(source: DamagedFileReader) -> Iterator[Finding]:
    prefix = source.read(0, PREFIX.size)
    if len(prefix) < PREFIX.size:
        yield Damage(0, f"{len(prefix)} bytes are too few for a snapshot")
        return
    version, crc, count = PREFIX.unpack(prefix)
    if version != VERSION:
        yield Damage(0, f"version {version} instead of {VERSION}")
        return
    actual = 0
    for piece in source.pieces(CRC_COVERS_FROM, source.size):
        actual = crc32c(piece, actual)
    if actual != crc:
        yield Damage(2, f"CRC {actual:#010x} instead of {crc:#010x}")
    for position, fields in source.entries(ENTRY, PREFIX.size):
        yield Fact("producer", {"position": position, **dict(zip(_PRODUCER, fields, strict=True))})
    if source.size != PREFIX.size + count * ENTRY.size:
        yield Damage(source.size, f"{source.size} bytes, but {count} producers need {PREFIX.size + count * ENTRY.size}")


def _pairs(source: DamagedFileReader, separator: str) -> dict[str, str]:
    lines = (text.strip() for _, text in source.lines() if not text.startswith(("#", "!")))
    return {name: value for name, found, value in (line.partition(separator) for line in lines) if found}
