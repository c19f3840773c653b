"""What the log directories hold at a start, held against what the cluster has on this broker.

A log that the cluster knows nothing of is a stray and is set aside; one that it knows of and that is not here is
absent, and may be lost (`storage.directory.lost_logs`).
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
    """Taken before a log is opened.

    hosted   the topic ids of all partitions that the cluster has on this broker; None where that is not known
    unread   topics of which nothing is known, not even whether this broker has any of their partitions
    found    the partitions whose logs are to be opened, by directory
    """

    def __init__(
        self,
        directories: Iterable[LogDirectory],
        hosted: Mapping[TopicPartition, str] | None,
        unread: Collection[str],
    ) -> None:
        self.hosted = hosted
        self.unread = frozenset(unread)
        self._strays: set[TopicPartition] = set()
        #: Set aside too, but the topic id that made them strays may have come by damage.
        self._doubted: set[TopicPartition] = set()
        self.found = {directory: self._take(directory) for directory in directories}

    def _take(self, directory: LogDirectory) -> list[TopicPartition]:
        """Finishes deletions that were interrupted, and sets strays aside."""
        found: list[TopicPartition] = []
        with directory.directory_failure_scope():
            directory.finish_deletions()
            for tp in directory.found():
                if self._maybe_set_aside(directory, tp):
                    continue
                found.append(tp)
            for name in directory.strays():
                _LOG.warning("%s holds records of a topic that is gone", directory.path / name)
        return found

    def _maybe_set_aside(self, directory: LogDirectory, tp: TopicPartition) -> bool:
        if self.hosted is None or tp.topic in self.unread:
            return False
        topic_id, proven = directory.metadata_of(tp)
        if not partition_metadata.differ(topic_id, self.hosted.get(tp)):
            return False
        stray = directory.set_aside(tp)
        _LOG.warning("%s of topic id %s is not this broker's any more: set aside, %s", tp, topic_id or "unknown", stray)
        (self._strays if proven else self._doubted).add(tp)
        return True

    def raise_if_found_twice(self) -> None:
        """DataDirectoryError where a partition has a log in two directories.

        What a creation that failed has left in one of them is no log, and is set aside: another was made elsewhere.
        """
        homes: dict[TopicPartition, LogDirectory] = {}
        for directory, tps in self.found.items():
            for tp in list(tps):
                other = homes.setdefault(tp, directory)
                if other is directory:
                    continue
                hollow: LogDirectory | None = None
                for each in (other, directory):
                    with each.directory_failure_scope():
                        hollow = each if each.is_hollow(tp) else hollow
                if hollow is None:
                    raise DataDirectoryError(
                        f"{tp} has a log in {other.path} and one in {directory.path}: move the wrong one away"
                    )
                homes[tp] = other if hollow is directory else directory
                self.found[hollow].remove(tp)
                with hollow.directory_failure_scope():
                    _LOG.warning("%s has a log in %s: set aside, %s", tp, homes[tp].path, hollow.set_aside(tp))

    # --- once the logs are open ----------------------------------------------------------------------

    def absent(self, working: Iterable[LogDirectory]) -> dict[TopicPartition, str]:
        """The topic ids of the partitions that should be here and are not open in these; "" where that is not known."""
        present = {tp for directory in working for tp in directory.logs}
        expected = self.hosted
        if expected is None:
            expected = dict.fromkeys((tp for tps in self.found.values() for tp in tps), "")
        return {tp: topic_id for tp, topic_id in expected.items() if tp not in present}

    def lost(
        self, absent: Mapping[TopicPartition, str], before: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, str]:
        """Of those that are absent the lost ones, by the directories that work; `before`: those of the last start.

        Beside those in doubt, and those before, these are all of them where a directory was found empty, and those of
        which something was committed here, by the checkpoint, and not to an earlier topic of the name.
        """
        working = [directory for directory in self.found if directory.works]
        empty = any(directory.found_empty for directory in working)
        held: set[TopicPartition] = set()
        for directory in working:
            held |= {tp for tp, offset in directory.checkpoints.high_watermarks().items() if offset > 0}
        missing = held.difference(self._strays).union(self._doubted)
        return {tp: topic_id for tp, topic_id in absent.items() if empty or tp in missing or before.get(tp) == topic_id}
