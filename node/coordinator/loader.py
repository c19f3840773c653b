"""Reading a partition of `__consumer_offsets` back: what its groups had committed, and who was in them.

A thread takes the records apart, into objects that nobody else sees until all is read. What cannot be understood is
stepped over and counted: one record that a later version wrote must not cost everybody their offsets.
"""

from __future__ import annotations

from collections.abc import Iterator

from cluster.groups.offsets import Offsets
from tidelog.errors import CorruptMessageError, MessageTooLargeError, UnsupportedCompressionTypeError
from tidelog.groups.offsets_topic import (
    CommitKey,
    GroupKey,
    GroupRecord,
    UnknownKey,
    decode_commit,
    decode_group,
    decode_key,
)
from tidelog.model import Buffer, TopicPartition
from tidelog.records import Record, decode_records, iter_headers


class Loaded:
    """What the records say that were read so far.

    offsets   by group
    groups    the last record of each group; None: it has a tombstone
    skipped   records, or batches of them, that could not be understood, by why
    """

    def __init__(self) -> None:
        self.offsets: dict[str, Offsets] = {}
        self.groups: dict[str, GroupRecord] = {}
        self.skipped: dict[str, int] = {}

    def read(self, data: Buffer) -> int:
        """Whole batches, one after the other; the offset after the last one."""
        next_offset = -1
        for position, header in iter_headers(data):
            next_offset = header.next_offset
            if header.is_control:
                continue
            try:
                records = decode_records(data, position)
            except (CorruptMessageError, MessageTooLargeError, UnsupportedCompressionTypeError):
                self._skip("damaged batch", header.record_count)
                continue
            for record in records:
                self._read(record)
        return next_offset

    def _read(self, record: Record) -> None:
        if record.key is None:
            self._skip("no key")
            return
        try:
            key = decode_key(record.key)
            match key:
                case CommitKey(group, topic, partition):
                    commit = None if record.value is None else decode_commit(record.value)
                    offsets = self.offsets.get(group)
                    if offsets is None:
                        offsets = self.offsets[group] = Offsets()
                    offsets.read(TopicPartition(topic, partition), commit, record.offset)
                case GroupKey(group):
                    if record.value is None:
                        self.groups.pop(group, None)
                    else:
                        self.groups[group] = decode_group(record.value)
                case UnknownKey(version):
                    self._skip(f"key of version {version}")
        except CorruptMessageError as error:
            self._skip(str(error))

    def _skip(self, why: str, count: int = 1) -> None:
        if why not in self.skipped and len(self.skipped) >= _MOST_REASONS:
            why = "other reasons"
        self.skipped[why] = self.skipped.get(why, 0) + count

    def group_ids(self) -> Iterator[str]:
        """Of those of which there is anything."""
        yield from self.groups
        yield from (group for group, offsets in self.offsets.items() if offsets and group not in self.groups)


_MOST_REASONS = 8
