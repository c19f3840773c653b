"""The future logs of a broker, and the log directories that were chosen for logs that do not exist yet."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from storage import partition_metadata
from storage.directory import lost_logs
from storage.directory.log_directory import LogDirectory
from storage.directory.startup_inventory import StartupInventory
from storage.files import Files
from storage.log_names import future_name, log_name
from storage.moves import move_marker
from storage.moves.future_log import FutureLog
from tidelog.model import TopicPartition

_LOG = logging.getLogger(__name__)

#: The most partitions without a log for which a directory is remembered. The oldest choice is forgotten first.
MOST_PREFERRED = 100_000


class FutureLogs:
    """At most one future log for each partition. Any thread may call each method."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._logs: dict[TopicPartition, FutureLog] = {}
        self._preferred: dict[TopicPartition, Path] = {}
        #: The directories in which old logs of these partitions still have their names.
        self._old_homes: dict[TopicPartition, LogDirectory] = {}
        #: The directories in which logs of these partitions are not opened (`judge_marked`).
        self._left_out: dict[TopicPartition, LogDirectory] = {}

    def __iter__(self) -> Iterator[FutureLog]:
        return iter(list(self._logs.values()))

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._logs

    def get(self, tp: TopicPartition) -> FutureLog | None:
        """Return the partition's future log; None if no move is under way."""
        return self._logs.get(tp)

    def add(self, tp: TopicPartition, target: LogDirectory) -> FutureLog:
        """Return a new future log in `target`, not open yet. InvalidTopicError if its name would be too long."""
        assert tp not in self._logs
        future = self._logs[tp] = FutureLog(tp, target, future_name(tp), self._files)
        return future

    def replaced(self, future: FutureLog, source: LogDirectory) -> None:
        """Drop the log, because it has replaced the log in `source`, which is not deleted yet."""
        self._old_homes[future.topic_partition] = source
        self.forget(future)

    def old_log_deleted(self, tp: TopicPartition) -> None:
        """Note that the old log of the partition has lost its name, so that its directory may get another one."""
        self._old_homes.pop(tp, None)

    def waits_for_deletion(self, tp: TopicPartition) -> bool:
        """Return whether the old log of the partition is being deleted, so that the next move must wait."""
        home = self._old_homes.get(tp)
        return home is not None and home.works

    def may_create(self, tp: TopicPartition, directory: LogDirectory) -> bool:
        """Return whether a new log of the partition may be created in this directory.

        While another log still has its name there, the new log would open that one's files.
        """
        return directory not in (self._old_homes.get(tp), self._left_out.get(tp))

    def forget(self, future: FutureLog) -> None:
        """Drop the log, because its move has ended."""
        if self._logs.get(future.topic_partition) is future:
            del self._logs[future.topic_partition]

    def cancel(self, *tps: TopicPartition) -> None:
        """Cancel the moves of these partitions, on request or because a log is deleted, set aside or offline."""
        for tp in tps:
            future = self._logs.pop(tp, None)
            if future is not None:
                future.cancelled = True

    def cancel_in(self, target: LogDirectory) -> None:
        """Cancel all moves to this directory, because it is offline."""
        self.cancel(*(future.topic_partition for future in self if future.target is target))

    # --- logs that do not exist yet ------------------------------------------------------------------

    def prefer(self, tp: TopicPartition, path: Path) -> None:
        """Remember, until the broker stops, in which directory the log of the partition is to be created."""
        self._preferred.pop(tp, None)
        self._preferred[tp] = path
        while len(self._preferred) > MOST_PREFERRED:
            self._preferred.pop(next(iter(self._preferred)), None)

    def preferred(self, tp: TopicPartition) -> Path | None:
        """Return the directory that is remembered for the log of the partition."""
        return self._preferred.get(tp)

    def created(self, tp: TopicPartition) -> None:
        """Forget the directory that is remembered for the log of the partition, because the log exists now."""
        self._preferred.pop(tp, None)

    # --- at the start --------------------------------------------------------------------------------

    def finish_replacements(self, directories: Collection[LogDirectory], offline: Iterable[Path]) -> None:
        """Delete each log that a move has replaced, if the last process ended before it deleted the log.

        Called before any log is opened. `offline` are the directories that cannot be opened now. A mark that names one
        of them stays.
        """
        if len(directories) + len(tuple(offline)) == 1:
            return
        by_path = {os.path.abspath(directory.path): directory for directory in directories}
        waiting = {os.path.abspath(path) for path in offline}
        for target in directories:
            with target.directory_failure_scope():
                for tp in target.found():
                    mark = move_marker.read(self._files, target.path / log_name(tp))
                    for path in map(str, mark.directories):
                        source = by_path.get(path)
                        if source is not None and source is not target:
                            with source.directory_failure_scope():
                                self._delete_earlier(tp, source, target, mark)
                    if mark.directories and waiting.isdisjoint(map(str, mark.directories)):
                        move_marker.remove(self._files, target.path / log_name(tp))

    def _delete_earlier(
        self, tp: TopicPartition, source: LogDirectory, target: LogDirectory, mark: move_marker.MoveMark
    ) -> None:
        """Delete the log in `source`.

        Keep it if its own mark shows that it is later than the log in `target`, or if it is of another topic.
        """
        if tp not in source.found():
            return
        earlier, later = source.path / log_name(tp), target.path / log_name(tp)
        ids = [partition_metadata.read(self._files, each).topic_id for each in (earlier, later)]
        if move_marker.read(self._files, earlier).number < mark.number and not partition_metadata.differ(*ids):
            _LOG.warning("%s: the log was moved to %s; the old one is deleted", tp, target.path)
            source.delete_replaced(tp)

    def judge_marked(self, inventory: StartupInventory, offline: Collection[Path]) -> None:
        """Decide for each log that a move had marked before the last process ended whether it is the latest one.

        Called after `finish_replacements`, so that no other directory has a later log that could be found. Such a log
        may exist in a directory that is offline: the marked log is left where it is, and counts as offline too. It may
        have been lost with a directory that was found empty, now or at an earlier start, or is not configured any more:
        the marked log is set aside, and counts as lost. Otherwise the move had not replaced the log, and the mark is
        removed.
        """
        for directory in inventory.found:
            with directory.directory_failure_scope():
                for tp in list(inventory.found[directory]):
                    log = directory.path / log_name(tp)
                    target = move_marker.read_target(self._files, log)
                    if target is None:
                        continue
                    if offline or not all(each.works for each in inventory.found):
                        _LOG.error("%s: not used, because its move to %s may have made a later log", log, target)
                        inventory.leave_out(directory, tp)
                        self._left_out[tp] = directory
                    elif self._may_be_lost(tp, target, inventory.found):
                        _LOG.error("%s: the later log that its move to %s may have made is lost", log, target)
                        inventory.set_aside(directory, tp)
                    else:
                        move_marker.remove_target(self._files, log)

    def _may_be_lost(self, tp: TopicPartition, target: Path, directories: Collection[LogDirectory]) -> bool:
        """Return whether a log that a move to `target` made may be lost. All configured directories work."""
        if all(os.path.abspath(each.path) != str(target) for each in directories):
            return True
        return any(each.found_empty or tp in lost_logs.read(self._files, each.path) for each in directories)

    def find(
        self,
        directories: Iterable[LogDirectory],
        home_of: Callable[[TopicPartition], LogDirectory | None],
        hosted: Mapping[TopicPartition, str] | None,
        unreadable_topics: Collection[str],
    ) -> None:
        """Take up the future logs of the last process, and delete those that are of no use any more.

        Called when the logs are open. `home_of` returns the directory of a partition's log. The arguments `hosted` and
        `unreadable_topics` are those of `LogManager.open_logs`. A future log without a current log stays on the disk,
        because the current log may be in a directory that is offline.
        """
        for target in directories:
            with target.directory_failure_scope():
                for tp, name in target.future_logs():
                    home = home_of(tp)
                    foreign = hosted is not None and tp not in hosted and tp.topic not in unreadable_topics
                    if foreign or home is target or tp in self._logs:
                        target.delete_directory(name, tp)
                    elif home is not None:
                        _LOG.info("%s: the move from %s to %s goes on", tp, home.path, target.path)
                        self._logs[tp] = FutureLog(tp, target, name, self._files)
