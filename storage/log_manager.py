"""The logs of a broker, in one or several log directories.

The directories fail independently. If a disk fails, its directory is taken offline and its logs raise StorageError. The
other directories keep working. A partition whose log may lie in an offline directory gets no new, empty log in another
directory, because that log would replace the records of the first one.
"""

from __future__ import annotations

import logging
import os
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from storage import partition_metadata
from storage.configs.log_config import LogConfig
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.directory import lost_logs, meta_properties
from storage.directory.directory_checkpoints import Committed
from storage.directory.leadership_checkpoint import Leadership
from storage.directory.log_directory import LogDirectory
from storage.directory.startup_inventory import StartupInventory
from storage.files import Files
from storage.log.log import Log
from storage.log_names import log_name
from storage.moves.future_log import FutureLog
from storage.moves.future_logs import FutureLogs
from storage.parallel import run_parallel
from tidelog.errors import DataDirectoryError, IneligibleReplicaError, LogDirNotFoundError, StorageError
from tidelog.model import TopicPartition

_LOG = logging.getLogger(__name__)

ConfigOf = Callable[[str], LogConfig]

_T = TypeVar("_T")


class LogManager:
    """All open logs of a broker. The logs' owner makes all calls, one at a time, unless a method allows any thread.

    directories   the working directories, in the order of the setting log_dirs
    failures      for each other directory, why it does not work
    files         the file system of the directories
    futures       the logs that moves between the directories fill
    """

    def __init__(
        self, directories: Sequence[LogDirectory], failures: Mapping[Path, StorageError], files: Files
    ) -> None:
        self.directories = tuple(directories)  # replaced whole, because other threads iterate over it
        self.failures = dict(failures)
        self.files = files
        self.futures = FutureLogs(files)
        #: Topic ids of partitions whose logs are, or may be, in an offline directory.
        self._offline: dict[TopicPartition, str] = {}
        self._unreadable_topics: Collection[str] = ()
        self._lost: dict[TopicPartition, str] = {}

    @classmethod
    def open(
        cls, paths: Sequence[Path], files: Files, broker_id: int, cluster_id: str, boot_id: str | None
    ) -> LogManager:
        """Take the directories for this broker until `close`.

        A directory that cannot be opened is offline from the start.

        A missing directory is created if no directory has an owner yet. Otherwise the broker has run before, and the
        missing directory counts as failed. DataDirectoryError if a directory is named twice, is in use, or belongs to
        another broker or cluster. StorageError if no directory can be opened.
        """
        if len({os.path.abspath(path) for path in paths}) < len(paths):
            raise DataDirectoryError(f"a log directory is named twice: {', '.join(map(str, paths))}")
        opened: list[LogDirectory] = []
        failures: dict[Path, StorageError] = {}
        has_run_before = any(_has_owner(path, files) for path in paths)
        try:
            for path in paths:
                try:
                    if has_run_before and not files.exists(path):
                        raise StorageError(f"{path} does not exist any more; to start it empty, create the directory")
                    opened.append(LogDirectory.open(path, files, broker_id, cluster_id, boot_id))
                except StorageError as error:
                    _LOG.error("log directory %s is offline: %s", path, error)
                    failures[path] = error
            if not opened:
                raise next(iter(failures.values()))
            return cls(opened, failures, files)
        except BaseException:
            for directory in opened:
                directory.close(directory.previous_shutdown.clean)
            raise

    @property
    def possibly_short(self) -> bool:
        """Return whether logs may lack records, because the machine went down, a flush failed, or data was damaged.

        Also true once the logs are open and one of them is known to lack committed records, because then others may
        too.
        """
        return bool(self._lost) or any(directory.data_loss_marker.possibly_short for directory in self.directories)

    def clear_possibly_short(self) -> None:
        """Clear the record of possible losses in each directory, because the cluster has dealt with them.

        A directory in which a flush has failed in this process keeps its record. `possibly_short` stays True while logs
        are recorded as lost. Any thread may call this.
        """
        for directory in self.directories:
            with directory.directory_failure_scope():
                directory.data_loss_marker.clear_possibly_short()

    # --- opening logs --------------------------------------------------------------------------------

    def open_logs(
        self,
        config_of: ConfigOf = lambda topic: LogConfig(),
        *,
        hosted: Mapping[TopicPartition, str] | None = None,
        unreadable_topics: Collection[str] = (),
        threads: int = 1,
    ) -> None:
        """Open every log, `threads` of them at once in each directory, and recover those that need it.

        Interrupted deletions are finished. `config_of` returns a topic's settings. `hosted` are the topic ids of all
        partitions that the cluster assigns to this broker; None: unknown. A log of another partition or topic id is a
        stray and is set aside, unless its topic is one of the `unreadable_topics`: the assignment of those is unknown.
        A stray counts as lost if its topic id may be damaged. Lost logs are recorded in every directory.

        Slow after a crash; run it on a thread. If the manager is closed meanwhile, the call returns early, after the
        logs that are being opened. DataDirectoryError if two directories hold a log of the same partition. StorageError
        if no directory works any more.
        """
        self.futures.finish_replacements(self.directories, self.failures)
        inventory = StartupInventory(self.directories, hosted, unreadable_topics)
        inventory.raise_if_found_twice()
        self.futures.judge_marked(inventory, self.failures)

        def open_all(directory: LogDirectory) -> None:
            def open_one(tp: TopicPartition) -> None:
                if directory.works and tp not in directory.logs:
                    with directory.directory_failure_scope():
                        directory.open_log(tp, config_of(tp.topic))

            run_parallel(threads, open_one, inventory.found[directory])

        run_parallel(len(self.directories), open_all, self.directories)
        if any(directory.closed for directory in self.directories):
            return
        self._record_absent(inventory)
        self.futures.find(self.directories, self.directory_of, hosted, unreadable_topics)
        self._unreadable_topics = inventory.unreadable_topics
        for path, error in self.failed():
            self.take_offline(path, error)
        self._raise_if_none_works()

    def _record_absent(self, inventory: StartupInventory) -> None:
        """Record which assigned partitions have no open log: their logs are offline or lost.

        While a directory is offline, any absent log may lie there. Lost logs are recorded nevertheless, because the
        next start may find no trace of the loss. A log that lies in the offline directory is removed from the record by
        the first start at which that directory works again.
        """
        working = [directory for directory in self.directories if directory.works]
        absent = inventory.absent(working)
        if self.failures or len(working) < len(self.directories):
            self._offline = absent
        if inventory.hosted is not None:
            self._find_and_record_lost(inventory, absent, working)
        if inventory.unreadable_topics:
            return  # which logs of these topics are lost is still unknown
        for directory in working:
            if directory.works:
                with directory.directory_failure_scope():
                    directory.forget_found_empty()

    def _find_and_record_lost(
        self, inventory: StartupInventory, absent: Mapping[TopicPartition, str], working: Iterable[LogDirectory]
    ) -> None:
        before: dict[TopicPartition, str] = {}
        for directory in working:
            with directory.directory_failure_scope():
                before |= lost_logs.read(self.files, directory.path)
        lost = inventory.lost(absent, before)
        if lost:
            _LOG.error(
                "%d logs are missing, or set aside although they may be valid; the first is %s", len(lost), min(lost)
            )
        if lost or before:  # also if both are equal, because a directory may have been offline or empty
            self._record_lost(lost)

    # --- logs ----------------------------------------------------------------------------------------

    def logs(self) -> Mapping[TopicPartition, Log]:
        """Return a view of the open logs in all directories that are not offline, for look-ups.

        Other threads may change the mapping meanwhile, so that only `every_log` is safe for iteration.
        """
        if len(self.directories) == 1:
            return self.directories[0].logs  # a look-up in a ChainMap takes ten times as long
        return ChainMap(*(directory.logs for directory in self.directories))

    def every_log(self) -> list[tuple[TopicPartition, Log]]:
        """Return a copy of the open logs for iteration. Any thread may call this."""
        return [each for directory in self.directories for each in list(directory.logs.items())]

    def log_of(self, tp: TopicPartition) -> Log | None:
        """Return the open log of the partition, or None. Any thread may call this, unlike look-ups in `logs`."""
        logs = (directory.logs.get(tp) for directory in self.directories)
        return next((log for log in logs if log is not None), None)

    def take_changed(self) -> set[TopicPartition]:
        """Return the partitions whose log was opened or has changed since the last call.

        Any thread may call this, one at a time.
        """
        return {tp for directory in self.directories for tp in directory.take_changed()}

    def log_sizes(self) -> dict[Path, dict[TopicPartition, int] | StorageError]:
        """Return the bytes of each open log by directory; for a failed or offline directory, its error."""
        found: dict[Path, dict[TopicPartition, int] | StorageError] = {}
        for directory in self.directories:
            sizes = {tp: log.size_bytes for tp, log in list(directory.logs.items())}
            found[directory.path] = sizes if directory.failure is None else directory.failure
        return found | self.failures

    def get_or_create(self, tp: TopicPartition, topic_id: str, config: LogConfig, *, in_sync: bool = False) -> Log:
        """Return the log of this partition and topic id, after giving it these settings. Create it if needed.

        A new log goes into the directory with the fewest logs. A log of an earlier topic of the same name is set aside
        first and never read. `in_sync`: this replica is in the ISR, so a log that was set aside is used again. Without
        `in_sync`, a lost log is replaced by an empty one and its record is removed.

        StorageError if the log may lie in an offline directory, or if no directory works. OutOfDescriptorsError if the
        call may be repeated. IneligibleReplicaError, with `in_sync`, if the log is or may be lost, or if several
        candidates for it exist. InvalidTopicError as `log_name`.
        """
        log_name(tp)
        directory = self.directory_of(tp)
        if directory is not None and partition_metadata.differ(directory.logs[tp].topic_id, topic_id):
            earlier = directory.logs[tp]
            _LOG.warning("%s: the log belongs to topic id %s instead of %s: set aside", tp, earlier.topic_id, topic_id)
            if not earlier.topic_id_proven:
                self._record_lost(self._lost | {tp: topic_id})
            self.set_aside(tp)
            directory = None
        if directory is None:
            self._raise_if_elsewhere(tp, topic_id, in_sync)
            directory = (self._put_back(tp, topic_id, config) if in_sync else None) or self._create(tp, config)
        log = directory.logs[tp]
        if topic_id and (log.topic_id, log.topic_id_proven) != (topic_id, True):
            with directory.directory_failure_scope(reraise=True):
                log.assign_topic_id(topic_id)
        log.configure(config)
        return log

    def _create(self, tp: TopicPartition, config: LogConfig) -> LogDirectory:
        while working := [each for each in self.directories if each.works and self.futures.may_create(tp, each)]:
            directory = self._directory_for(tp, working)
            try:
                for each in working:  # no directory may keep checkpoints of an earlier log of the partition
                    with each.directory_failure_scope(reraise=True):
                        each.checkpoints.lower_to(tp, 0)
                with directory.directory_failure_scope(reraise=True):
                    directory.open_log(tp, config)
                    self.futures.created(tp)
                    return directory
            except OutOfDescriptorsError:
                raise
            except StorageError:
                continue
        raise self._none_works()

    def _directory_for(self, tp: TopicPartition, working: Iterable[LogDirectory]) -> LogDirectory:
        """Return the directory for a new log: the one that was chosen for the partition, else that of fewest logs."""
        preferred = self.futures.preferred(tp)
        by_count = sorted(working, key=lambda each: len(each.logs))
        return next((each for each in by_count if each.path == preferred), by_count[0])

    def _put_back(self, tp: TopicPartition, topic_id: str, config: LogConfig) -> LogDirectory | None:
        """Restore and open a stray log of this topic id; return None if there is none.

        The log was set aside because an outdated ZooKeeper did not assign the partition to this broker.
        """
        working = (each for each in self.directories if each.works)
        strays = [(directory, name) for directory in working for name in directory.strays_of(tp, topic_id)]
        if not strays:
            return None
        if len(strays) > 1:
            places = ", ".join(str(directory.path / name) for directory, name in strays)
            raise IneligibleReplicaError(f"{tp} has several logs that were set aside; keep one of them: {places}")
        ((directory, name),) = strays
        _LOG.warning("%s is assigned to this broker again: %s is put back", tp, directory.path / name)
        try:
            with directory.directory_failure_scope(reraise=True):
                directory.put_back(tp, name, config)
        except OutOfDescriptorsError:
            raise
        except StorageError:
            self._offline[tp] = topic_id  # the log is in that directory, as a stray or under its own name
            raise
        return directory

    def _raise_if_elsewhere(self, tp: TopicPartition, topic_id: str, in_sync: bool) -> None:
        if tp in self._offline and not partition_metadata.differ(self._offline[tp], topic_id):
            raise StorageError(f"the log of {tp} may be in a directory that is offline: {self._failed_paths()}")
        if in_sync and tp.topic in self._unreadable_topics and any(each.may_have_held(tp) for each in self.directories):
            raise IneligibleReplicaError(
                f"the log of {tp} may be lost: when this broker started, the assignment of the topic was unknown"
            )
        if tp in self._lost and not partition_metadata.differ(self._lost[tp], topic_id):
            if in_sync:
                raise IneligibleReplicaError(
                    f"the log of {tp} is missing, or set aside although it may be valid, and this replica is in the ISR"
                )
            self._record_lost({each: id_ for each, id_ in self._lost.items() if each != tp})

    def set_aside(self, tp: TopicPartition) -> Path:
        """Close a log, remove its checkpoints and rename its directory to a stray's name. Return the new directory.

        StorageError, also if the partition has no log. After an OutOfDescriptorsError the log is still in use.
        """
        log_name(tp)
        directory = self.directory_of(tp)
        if directory is None:
            raise StorageError(f"there is no log of {tp}")
        self.futures.cancel(tp)
        with directory.directory_failure_scope(reraise=True):
            return directory.set_aside(tp)
        raise AssertionError

    def delete(self, *tps: TopicPartition) -> None:
        """Close these logs, remove their checkpoints and rename their directories; `remove_deleted_log` removes the
        files.

        Partitions without a log here are ignored. A log in an offline directory stays there, so that `get_or_create`
        still refuses to create another one of the same topic id: the next start would find both. StorageError.
        OutOfDescriptorsError if the call must be repeated for some of the logs, which are still in use.
        """
        for tp in tps:
            log_name(tp)
        self.futures.cancel(*tps)
        errors = []
        for directory in self.directories:
            if mine := [tp for tp in tps if tp in directory.logs]:
                try:
                    with directory.directory_failure_scope(reraise=True):
                        directory.delete(*mine)
                except StorageError as error:
                    errors.append(error)
        if errors:
            raise next((error for error in errors if isinstance(error, OutOfDescriptorsError)), errors[0])

    @property
    def has_deleted_logs(self) -> bool:
        """Return whether `remove_deleted_log` has something to do. Any thread may call this."""
        return any(directory.has_deleted_logs for directory in self.directories)

    def remove_deleted_log(self) -> bool:
        """Remove the files of one deleted log, which may take long. Return False if none can be removed now.

        Any thread may call this, one at a time.
        """
        for directory in self.directories:
            with directory.directory_failure_scope(later=True):
                if directory.remove_deleted_log():
                    return True
        return False

    # --- moves ---------------------------------------------------------------------------------------

    def directory_named(self, path: str) -> LogDirectory:
        """Return the working directory with this absolute path. LogDirNotFoundError; StorageError if it is offline."""
        if os.path.isabs(path):
            for directory in self.directories:
                if os.path.abspath(directory.path) == os.path.normpath(path):
                    if not directory.works:
                        raise StorageError(f"the log directory {path} is offline")
                    return directory
            if any(os.path.abspath(each) == os.path.normpath(path) for each in self.failures):
                raise StorageError(f"the log directory {path} is offline")
        raise LogDirNotFoundError(f"{path!r} is not the absolute path of a log directory of this broker")

    def replace_log(self, future: FutureLog) -> tuple[LogDirectory, Log]:
        """Let a future log with all records take the place of the partition's log. StorageError, with no change.

        Return the old log, which can still be read, and its directory. For the owner only, between two appends.
        """
        tp, target = future.topic_partition, future.target
        source = self.directory_of(tp)
        if source is None or not target.works:
            raise StorageError(f"{tp}: the log directory {target.path} is offline, or the log is gone")
        future.become_current()
        old = source.logs.pop(tp)
        old.retire()
        target.logs[tp] = future.log
        target.log_changed(tp)
        if target.failure is not None:
            future.log.fail(target.failure)
        self.futures.replaced(future, source)
        return source, old

    def old_log_deleted(self, tp: TopicPartition) -> None:
        """Note that the log which `replace_log` has returned is deleted. Any thread may call this."""
        self.futures.old_log_deleted(tp)

    def waits_for_deletion(self, tp: TopicPartition) -> bool:
        """Return whether the log which `replace_log` has returned is not deleted yet. Any thread may call this."""
        return self.futures.waits_for_deletion(tp)

    def directory_of(self, tp: TopicPartition) -> LogDirectory | None:
        """Return the directory with the open log of the partition; None if there is none. Any thread may call this."""
        return next((directory for directory in self.directories if tp in directory.logs), None)

    # --- failures ------------------------------------------------------------------------------------

    def report(self, tp: TopicPartition, error: StorageError) -> None:
        """Report that a call of this partition's log failed, so that its directory fails. Any thread may call this.

        An OutOfDescriptorsError is ignored, because the disk has not failed and the call may be repeated.
        """
        if isinstance(error, OutOfDescriptorsError):
            return
        if directory := self.directory_of(tp):
            directory.fail(error)

    @property
    def works(self) -> bool:
        """Return whether at least one directory works."""
        return any(directory.works for directory in self.directories)

    def failed(self) -> list[tuple[Path, StorageError]]:
        """Return the directories that have failed and are not offline yet, with their errors."""
        return [(each.path, each.failure) for each in self.directories if each.failure is not None]

    def take_offline(self, path: Path, error: StorageError) -> tuple[TopicPartition, ...]:
        """Give up a directory until the next start: close its files and release its lock.

        Return the partitions in it; their logs raise StorageError from now on. Do nothing, and return (), if it is
        offline already. An error of closing is only logged, because the directory has failed anyway.
        """
        directory = next((each for each in self.directories if each.path == path), None)
        if directory is None:
            return ()
        directory.fail(error)
        _LOG.error("log directory %s is offline, and %d logs with it: %s", path, len(directory.logs), error)
        self.failures[path] = error
        self.directories = tuple(each for each in self.directories if each is not directory)
        try:
            directory.close(clean=False)
        except StorageError as closing:
            _LOG.warning("log directory %s: %s", path, closing)
        gone = {tp: log.topic_id for tp, log in list(directory.logs.items())}
        self._offline |= gone
        self.futures.cancel_in(directory)
        self.futures.cancel(*gone)
        return tuple(gone)

    def _raise_if_none_works(self) -> None:
        if not self.works:
            raise self._none_works()

    def _none_works(self) -> StorageError:
        return StorageError(f"no log directory works: {self._failed_paths()}")

    def _failed_paths(self) -> str:
        errors = [*self.failures.values(), *(error for _, error in self.failed())]
        return "; ".join(map(str, errors))

    # --- checkpoints ---------------------------------------------------------------------------------

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the checkpointed high watermarks of the open logs; logs without one are left out."""
        found: dict[TopicPartition, int] = {}
        for directory in self.directories:
            offsets = directory.checkpoints.high_watermarks()
            found |= {tp: offset for tp, offset in offsets.items() if tp in directory.logs}
        return found

    def checkpoint_high_watermarks(self, committed: Mapping[TopicPartition, Committed]) -> None:
        """Write the high watermarks of each directory's logs and flush them (`DirectoryCheckpoints`).

        Any thread may call this method and those for other checkpoints. An error is a failure of one directory only.
        """
        for directory in self.directories:
            with directory.directory_failure_scope(later=True):
                directory.checkpoints.write_high_watermarks(committed)

    def leaderships(self) -> dict[TopicPartition, Leadership]:
        """Return the checkpointed leaderships, also of partitions without a log.

        Two directories have one of a partition after a log was moved by hand. The one with the higher partition epoch
        then counts.
        """
        found: dict[TopicPartition, Leadership] = {}
        for directory in self.directories:
            for tp, leadership in directory.checkpoints.leaderships.items():
                if tp not in found or leadership.partition_epoch > found[tp].partition_epoch:
                    found[tp] = leadership
        return found

    def checkpoint_leaderships(self, leaderships: Mapping[TopicPartition, Leadership]) -> None:
        """Replace each directory's checkpoint with the leaderships of its logs, without a flush.

        Partitions without a log in the directory are dropped from its checkpoint.

        OutOfDescriptorsError if no descriptor was free for one of them. Then nothing has failed, and the call must be
        repeated.
        """

        def checkpoint(directory: LogDirectory) -> None:
            mine = {tp: leaderships[tp] for tp in list(directory.logs) if tp in leaderships}
            directory.checkpoints.write_leaderships(mine)

        self._write_to_each(checkpoint)

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery point of every log into its directory's checkpoint, and flush the checkpoints."""
        for directory in self.directories:
            with directory.directory_failure_scope(later=True):
                directory.checkpoints.write_recovery_points()

    def checkpoint_log_starts(self) -> None:
        """Write and flush the log start offsets that the first segment of a log does not show."""
        for directory in self.directories:
            with directory.directory_failure_scope(later=True):
                directory.checkpoints.write_log_starts()

    @property
    def has_unwritten_epochs(self) -> bool:
        """Return whether `write_epochs` has something to do."""
        return any(directory.has_unwritten_epochs for directory in self.directories)

    def write_epochs(self) -> None:
        """Write the epoch files of logs in which a leader epoch has begun, without a flush.

        Any thread, one at a time.
        """
        for directory in self.directories:
            with directory.directory_failure_scope(later=True):
                directory.write_epochs()

    def cleaner_offset(self, tp: TopicPartition) -> int:
        """Return the offset up to which a log is compacted; 0 if unknown."""
        directory = self.directory_of(tp)
        return 0 if directory is None else directory.checkpoints.cleaner_offset(tp)

    def record_cleaned(self, tp: TopicPartition, log: Log, offset: int, truncation_count: int) -> bool:
        """Record that this log is compacted up to `offset`, and flush the record. Return whether it was recorded.

        Nothing is recorded if the log was truncated since `truncation_count`, or if another log has replaced it.
        """
        recorded = False
        if directory := self.directory_of(tp):
            with directory.directory_failure_scope(later=True):
                recorded = directory.checkpoints.write_cleaner_offset(tp, log, offset, truncation_count)
        return recorded

    def _record_lost(self, lost: dict[TopicPartition, str]) -> None:
        self._write_to_each(lambda directory: lost_logs.write(self.files, directory.path, lost))
        self._lost = lost

    def _write_to_each(self, write: Callable[[LogDirectory], object]) -> None:
        """Call `write` for every directory. At the end raise the OutOfDescriptorsError of one that must be repeated."""
        out_of_descriptors: OutOfDescriptorsError | None = None
        for directory in self.directories:
            with directory.directory_failure_scope():
                try:
                    write(directory)
                except OutOfDescriptorsError as error:
                    out_of_descriptors = error
        if out_of_descriptors is not None:
            raise out_of_descriptors

    # --- session and end -----------------------------------------------------------------------------

    def read_session(self) -> str | None:
        """Return the ZooKeeper session that the previous process wrote; None if no directory has one."""
        for directory in self.directories:
            with directory.directory_failure_scope():
                if session := directory.read_session():
                    return session
        return None

    def write_session(self, session: str) -> None:
        """Write and flush the ZooKeeper session in every directory, for the next process.

        StorageError if no directory works.
        """
        for directory in self.directories:
            with directory.directory_failure_scope():
                directory.write_session(session)
        self._raise_if_none_works()

    def close(self, clean: bool = True) -> None:
        """Close all logs and release all directories. The first error is raised at the end.

        With `clean`, the logs of working directories are flushed first, and their clean-shutdown markers are written
        (`LogDirectory.close`).
        """
        errors = []
        for directory in self.directories:
            try:
                directory.close(clean)
            except StorageError as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _has_owner(path: Path, files: Files) -> bool:
    try:
        return files.exists(path / meta_properties.FILE_NAME)
    except StorageError:
        return False
