"""Reading a partition of `__consumer_offsets` back: what its groups had committed, and who was in them.

A thread takes the records apart, into objects that nobody else sees until all is read. What cannot be understood is
stepped over and counted: one record that a later version wrote must not cost everybody their offsets.
"""

from __future__ import annotations

from collections.abc import Iterator

from cluster.groups.committed_offsets import CommittedOffsets
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
from tidelog.records import decode_pairs, iter_headers
from tidelog.records.header import check_crc


class Loaded:
    """What the records say that were read so far.

    offsets   by group
    groups    the last record of each group; None: it has a tombstone
    skipped   records, or batches of them, that could not be understood, by why

    A batch whose bytes are not those that were written is an error, as other replicas have them; with `skip_damaged`,
    where there are none, it is skipped.
    """

    def __init__(self, *, skip_damaged: bool = False) -> None:
        self._skip_damaged = skip_damaged
        self.offsets: dict[str, CommittedOffsets] = {}
        self.groups: dict[str, GroupRecord] = {}
        self.skipped: dict[str, int] = {}
        self._topics: dict[str, str] = {}

    def read(self, data: Buffer) -> int:
        """Whole batches, one after the other; the offset after the last one. CorruptMessageError."""
        next_offset = -1
        for position, header in iter_headers(data):
            next_offset = header.next_offset
            if header.is_control:
                continue
            try:
                pairs = decode_pairs(data, position, header)
            except (CorruptMessageError, MessageTooLargeError, UnsupportedCompressionTypeError):
                if not self._skip_damaged:
                    check_crc(data, position, header)
                self._skip("unreadable batch", header.record_count)
                continue
            for offset, key, value in pairs:
                try:
                    self._read(offset, key, value)
                except CorruptMessageError as error:
                    self._skip(str(error))
        return next_offset

    def _read(self, offset: int, key_data: bytes | None, value: bytes | None) -> None:
        if key_data is None:
            self._skip("no key")
            return
        key = decode_key(key_data)
        if type(key) is CommitKey:
            commit = None if value is None else decode_commit(value)
            offsets = self.offsets.get(key.group)
            if offsets is None:
                offsets = self.offsets[key.group] = CommittedOffsets()
            # One text for each topic, and not one for each record.
            topic = self._topics.setdefault(key.topic, key.topic)
            offsets.read(TopicPartition(topic, key.partition), commit, offset)
        elif type(key) is GroupKey:
            if value is None:
                self.groups.pop(key.group, None)
            else:
                self.groups[key.group] = decode_group(value)
        elif type(key) is UnknownKey:
            self._skip(f"key of version {key.version}")

    def _skip(self, why: str, count: int = 1) -> None:
        if why not in self.skipped and len(self.skipped) >= _MOST_REASONS:
            why = "other reasons"
        self.skipped[why] = self.skipped.get(why, 0) + count

    def group_ids(self) -> Iterator[str]:
        """Of those of which there is anything."""
        yield from self.groups
        yield from (group for group, offsets in self.offsets.items() if offsets and group not in self.groups)


_MOST_REASONS = 8
