"""What each topic setting is for, in a line; the unit is in its name."""

from __future__ import annotations

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "cleanup.policy": "what becomes of old records: delete by time and size, compact to the last of each key, or both",
    "compression.gzip.level": "how hard gzip tries, where the broker compresses; -1 is gzip's own",
    "compression.lz4.level": "how hard lz4 tries, where the broker compresses",
    "compression.type": "what batches are compressed with on disk; producer keeps each as it came",
    "compression.zstd.level": "how hard zstd tries, where the broker compresses",
    "delete.retention.ms": "how long a tombstone stays after compaction passed it",
    "file.delete.delay.ms": "how long the files of a deleted segment stay",
    "flush.messages": "records after which the log is synced; 1 acknowledges only what is on every ISR member's disk",
    "flush.ms": "age at which what is not synced is synced",
    "follower.replication.throttled.replicas": "which followers are throttled: *, or partition:broker pairs",
    "index.interval.bytes": "bytes of records between two entries of an index",
    "leader.replication.throttled.replicas": "which leaders are throttled: *, or partition:broker pairs",
    "local.retention.bytes": "size of the local part of a tiered log",
    "local.retention.ms": "age of the local part of a tiered log",
    "max.compaction.lag.ms": "age at which a record is compacted whatever the dirty ratio",
    "max.message.bytes": "size of the largest batch that is taken",
    "message.downconversion.enable": "whether old clients get old formats",
    "message.format.version": "the format of batches",
    "message.timestamp.after.max.ms": "how far a record's timestamp may lie after the leader's clock",
    "message.timestamp.before.max.ms": "how far a record's timestamp may lie before the leader's clock",
    "message.timestamp.difference.max.ms": "the older setting of both bounds, for the one that is at its default",
    "message.timestamp.type": "whose time a record has: the producer's (CreateTime) or the leader's (LogAppendTime)",
    "min.cleanable.dirty.ratio": "share of a log that must be new since its last compaction to be worth the next",
    "min.compaction.lag.ms": "age below which no record is compacted",
    "min.insync.replicas": "in-sync replicas without which acks=all is refused",
    "preallocate": "whether a segment's file is made in its full size",
    "remote.log.copy.disable": "whether a tiered log is only read from its tier",
    "remote.log.delete.on.disable": "whether the tier is emptied when tiering ends",
    "remote.storage.enable": "whether the log is tiered",
    "retention.bytes": "size of a partition beyond which its oldest segments go; negative: no limit",
    "retention.ms": "age at which records go, segment by segment; -1: never",
    "segment.bytes": "size at which a segment is sealed",
    "segment.index.bytes": "size of an index at which its segment is sealed",
    "segment.jitter.ms": "how much earlier, at random, a segment is sealed by age",
    "segment.ms": "age at which a segment is sealed",
    "unclean.leader.election.enable": "whether a replica that may lack records leads where no in-sync one is left",
}
