"""Load a partition of `__consumer_offsets`: the committed offsets and the members of its groups.

A thread decodes the records into objects that no other thread uses until all records are read. The loader skips and
counts records that it does not understand, so that one record of a later version does not cost all groups their
offsets.
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
    """The contents of the records that were read so far.

    offsets   the committed offsets of each group
    groups    the last record of each group without a later tombstone
    skipped   the number of records that were skipped, by reason

    A damaged batch raises an error, because other replicas have its records. With `skip_damaged`, for a partition
    without other replicas, a damaged batch is skipped, unless its header is damaged.
    """

    def __init__(self, *, skip_damaged: bool = False) -> None:
        self._skip_damaged = skip_damaged
        self.offsets: dict[str, CommittedOffsets] = {}
        self.groups: dict[str, GroupRecord] = {}
        self.skipped: dict[str, int] = {}
        self._topics: dict[str, str] = {}

    def read(self, data: Buffer) -> int:
        """Read the whole batches in `data`, and return the offset after the last one; −1 without a whole batch.

        Add their committed offsets and groups to the contents, and ignore an incomplete batch at the end. A damaged
        batch raises CorruptMessageError. With `skip_damaged` such a batch is skipped, unless its header is damaged.
        Records that cannot be decoded although the CRC matches are skipped and counted.
        """
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
            # All records of a topic share one string object, to save memory.
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
        """Yield the ids of all groups that have a record or a committed offset."""
        yield from self.groups
        yield from (group for group, offsets in self.offsets.items() if offsets and group not in self.groups)


_MOST_REASONS = 8
