"""The documentation of each topic setting, in one line. The unit is in the setting's name."""

from __future__ import annotations

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "cleanup.policy": "how old records are removed: delete (time, size), compact (keep the last of each key), or both",
    "compression.gzip.level": "compression level of gzip when the broker compresses; -1: the default of gzip",
    "compression.lz4.level": "compression level of lz4 when the broker compresses",
    "compression.type": "codec of batches on disk; producer: as the producer sent them",
    "compression.zstd.level": "compression level of zstd when the broker compresses",
    "delete.retention.ms": "how long a tombstone stays after the first compaction that reads it",
    "file.delete.delay.ms": "how long the files of a deleted segment stay",
    "flush.messages": "unflushed records at which a log is flushed; 1: acknowledged records are on all ISR disks",
    "flush.ms": "age at which an unflushed record is flushed",
    "follower.replication.throttled.replicas": "followers that are throttled: *, or partition:broker pairs",
    "index.interval.bytes": "bytes of records between two entries of an index",
    "leader.replication.throttled.replicas": "leaders that are throttled: *, or partition:broker pairs",
    "local.retention.bytes": "size of the local part of a tiered log",
    "local.retention.ms": "age of the local part of a tiered log",
    "max.compaction.lag.ms": "age at which a record is compacted whatever the dirty ratio",
    "max.message.bytes": "size of the largest batch that the broker accepts",
    "message.downconversion.enable": "whether the broker converts batches for old clients",
    "message.format.version": "the format of batches",
    "message.timestamp.after.max.ms": "how far a record's timestamp may lie after the leader's clock",
    "message.timestamp.before.max.ms": "how far a record's timestamp may lie before the leader's clock",
    "message.timestamp.difference.max.ms": "older setting for both bounds; applies to a bound that has its default",
    "message.timestamp.type": "source of timestamps: the producer (CreateTime) or the leader (LogAppendTime)",
    "min.cleanable.dirty.ratio": "share of a log that must be uncompacted before the next compaction",
    "min.compaction.lag.ms": "age below which no record is compacted",
    "min.insync.replicas": "smallest ISR with which a produce with acks=all is accepted",
    "preallocate": "whether a segment file is created with its full size",
    "remote.log.copy.disable": "whether new segments are no longer copied to the remote tier",
    "remote.log.delete.on.disable": "whether the remote tier is deleted when tiering is disabled",
    "remote.storage.enable": "whether the log is tiered",
    "retention.bytes": "size of a partition above which its oldest segments are deleted; negative: no limit",
    "retention.ms": "age at which a segment is deleted; -1: never",
    "segment.bytes": "size at which a segment is rolled",
    "segment.index.bytes": "size of an index at which its segment is rolled",
    "segment.jitter.ms": "by how much, at random, a segment is rolled earlier than segment.ms",
    "segment.ms": "age at which a segment is rolled",
    "unclean.leader.election.enable": "whether a replica that may lack records becomes leader if no ISR member is left",
}
