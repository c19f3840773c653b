"""Compares the logs found at startup with the partitions that the cluster assigns to this broker.

A log that the cluster does not assign to this broker is a stray and is set aside. An assigned partition without a log
is absent, and its log may be lost (`storage.directory.lost_logs`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from storage import partition_metadata
from storage.directory.log_directory import LogDirectory
from tidelog.errors import DataDirectoryError
from tidelog.model import TopicPartition

_LOG = logging.getLogger(__name__)


class StartupInventory:
    """The result of the comparison, made before any log is opened.

    The construction finishes interrupted deletions and sets strays aside in all directories.

    hosted             the topic ids of all partitions that the cluster assigns to this broker; None if unknown
    unreadable_topics  topics for which even the assignment is unknown
    found              the partitions whose logs are to be opened, by directory
    """

    def __init__(
        self,
        directories: Iterable[LogDirectory],
        hosted: Mapping[TopicPartition, str] | None,
        unreadable_topics: Collection[str],
    ) -> None:
        self.hosted = hosted
        self.unreadable_topics = frozenset(unreadable_topics)
        self._strays: set[TopicPartition] = set()
        #: Strays that may be valid logs, because their topic id may be damaged, or that a lost log had replaced.
        self._possibly_valid: set[TopicPartition] = set()
        #: Partitions of which a later log may be in a directory that is offline (`leave_out`).
        self._left_out: set[TopicPartition] = set()
        self.found = {directory: self._scan(directory) for directory in directories}

    def _scan(self, directory: LogDirectory) -> list[TopicPartition]:
        """Finish interrupted deletions and set strays aside. Return the partitions of the other logs."""
        found: list[TopicPartition] = []
        with directory.directory_failure_scope():
            directory.finish_deletions()
            for tp in directory.found():
                if self._maybe_set_aside(directory, tp):
                    continue
                found.append(tp)
            for name in directory.strays():
                _LOG.warning("%s: this log was set aside earlier and still uses disk space", directory.path / name)
        return found

    def _maybe_set_aside(self, directory: LogDirectory, tp: TopicPartition) -> bool:
        if self.hosted is None or tp.topic in self.unreadable_topics:
            return False
        topic_id, proven = directory.metadata_of(tp)
        if not partition_metadata.differ(topic_id, self.hosted.get(tp)):
            return False
        stray = directory.set_aside(tp)
        _LOG.warning(
            "%s: the log has topic id %s, which the cluster does not assign to this broker: set aside as %s",
            tp,
            topic_id or "unknown",
            stray,
        )
        (self._strays if proven else self._possibly_valid).add(tp)
        return True

    def raise_if_found_twice(self) -> None:
        """Raise DataDirectoryError if two directories hold a log of the same partition, and neither log is empty.

        An empty log is set aside instead. A failed creation left it, and the log was then created in another directory.
        """
        homes: dict[TopicPartition, LogDirectory] = {}
        for directory, tps in self.found.items():
            for tp in list(tps):
                other = homes.setdefault(tp, directory)
                if other is directory:
                    continue
                empty_log: LogDirectory | None = None
                for each in (other, directory):
                    with each.directory_failure_scope():
                        empty_log = each if each.is_empty_log(tp) else empty_log
                if empty_log is None:
                    raise DataDirectoryError(
                        f"{tp} has a log in {other.path} and another in {directory.path}: move one of them away"
                    )
                homes[tp] = other if empty_log is directory else directory
                self.found[empty_log].remove(tp)
                with empty_log.directory_failure_scope():
                    _LOG.warning(
                        "%s: the log is in %s; an empty one is set aside as %s",
                        tp,
                        homes[tp].path,
                        empty_log.set_aside(tp),
                    )

    def leave_out(self, directory: LogDirectory, tp: TopicPartition) -> None:
        """Let this log stay closed, with its checkpoints, because a later one may be in a directory that is offline."""
        self.found[directory].remove(tp)
        self._left_out.add(tp)
        directory.checkpoints.keep(tp)

    def set_aside(self, directory: LogDirectory, tp: TopicPartition) -> None:
        """Set this log aside, because a later one is lost. StorageError."""
        self.found[directory].remove(tp)
        self._possibly_valid.add(tp)
        _LOG.warning("%s: the log is set aside as %s", tp, directory.set_aside(tp))

    # --- once the logs are open ----------------------------------------------------------------------

    def absent(self, working: Iterable[LogDirectory]) -> dict[TopicPartition, str]:
        """Return the topic ids of assigned partitions that are not open in `working`; "" if the id is unknown.

        If the assignment is unknown, the partitions whose logs were found count as assigned.
        """
        present = {tp for directory in working for tp in directory.logs}
        expected = self.hosted
        if expected is None:
            expected = dict.fromkeys((*self._left_out, *(tp for tps in self.found.values() for tp in tps)), "")
        return {tp: topic_id for tp, topic_id in expected.items() if tp not in present}

    def lost(
        self, absent: Mapping[TopicPartition, str], before: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, str]:
        """Return the topic ids of the absent partitions whose logs are lost. `before` are those recorded earlier.

        An absent partition is lost in each of these cases:
        A: a working directory was found empty.
        B: the high-watermark checkpoint shows committed records, and not those of an earlier topic of the same name.
        C: its log was set aside although its topic id may be damaged, or because a later log is lost.
        D: it was recorded as lost before, with the same topic id.

        A log that was left out is in an offline directory, so that B does not hold for it.
        """
        working = [directory for directory in self.found if directory.works]
        empty = any(directory.found_empty for directory in working)
        held: set[TopicPartition] = set()
        for directory in working:
            held |= {tp for tp, offset in directory.checkpoints.high_watermarks().items() if offset > 0}
        missing = held.difference(self._strays, self._left_out).union(self._possibly_valid)
        return {tp: topic_id for tp, topic_id in absent.items() if empty or tp in missing or before.get(tp) == topic_id}
