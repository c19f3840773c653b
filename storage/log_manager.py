"""The logs of a broker, in one or several log directories.

Each directory stands and falls by itself: one whose disk fails is taken offline, its logs raise StorageError, and the
others go on. What a directory holds is not forgotten with it: no second, empty log of a partition is made elsewhere
as long as its log may lie in a directory that is offline, for it would stand in for the records of the first.
"""

from __future__ import annotations

import logging
import os
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from tidelog.errors import DataDirectoryError, IneligibleReplicaError, StorageError
from tidelog.model import TopicPartition

_LOG = logging.getLogger(__name__)

ConfigOf = Callable[[str], LogConfig]

_T = TypeVar("_T")


class LogManager:
    """All calls but those that say otherwise belong to the logs' owner, one at a time.

    directories   those that work, in the order of the settings
    failures      why the others do not
    """

    def __init__(
        self, directories: Sequence[LogDirectory], failures: Mapping[Path, StorageError], files: Files
    ) -> None:
        self.directories = tuple(directories)  # replaced whole: other threads go through it
        self.failures = dict(failures)
        self._files = files
        #: Topic ids of partitions whose logs lie in a directory that is offline, or may lie there.
        self._offline: dict[TopicPartition, str] = {}
        self._unread: Collection[str] = ()
        self._lost: dict[TopicPartition, str] = {}

    @classmethod
    def open(
        cls, paths: Sequence[Path], files: Files, broker_id: int, cluster_id: str, boot_id: str | None
    ) -> LogManager:
        """Takes the directories for this broker until `close`; those that cannot be opened are offline from the start.

        A directory that does not exist is made, unless the broker has lived before: then it has vanished.
        DataDirectoryError where one is named twice, is in use, or belongs to another broker or cluster; StorageError
        where none can be opened.
        """
        if len({os.path.abspath(path) for path in paths}) < len(paths):
            raise DataDirectoryError(f"a log directory is named twice: {', '.join(map(str, paths))}")
        opened: list[LogDirectory] = []
        failures: dict[Path, StorageError] = {}
        lived = any(_has_owner(path, files) for path in paths)
        try:
            for path in paths:
                try:
                    if lived and not files.exists(path):
                        raise StorageError(f"{path} has vanished; if it is to begin anew, make an empty directory")
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
        """Whether the machine went down since a directory was last in order, so that logs may lack their ends.

        Or, once the logs are open, whether any lacked what is known to have been committed: then others may as well.
        """
        return bool(self._lost) or any(directory.data_loss_marker.possibly_short for directory in self.directories)

    def vouch(self) -> None:
        """The cluster has dealt with what logs may lack. May be called on any thread."""
        for directory in self.directories:
            with directory.directory_failure_scope():
                directory.data_loss_marker.vouch()

    # --- opening logs --------------------------------------------------------------------------------

    def open_logs(
        self,
        config_of: ConfigOf = lambda topic: LogConfig(),
        *,
        hosted: Mapping[TopicPartition, str] | None = None,
        unread: Collection[str] = (),
        threads: int = 1,
    ) -> None:
        """Opens every log that the directories hold, `threads` at once in each; recovers those that need it.

        Interrupted deletions are finished. `config_of` gives a topic's settings.
        `hosted` are the topic ids of all partitions that the cluster has on this broker: a log of any other partition
        or topic is a stray and is set aside, but for topics in `unread`: of those nothing is known. Where the id of a
        stray may have come by damage, it counts as lost.

        Slow after a crash; run it on a thread. Ends early, after the logs at hand, where the manager is closed
        meanwhile. DataDirectoryError where a partition has a log in two directories, StorageError where no directory
        works any more.
        """
        inventory = StartupInventory(self.directories, hosted, unread)
        inventory.raise_if_found_twice()

        def open_all(directory: LogDirectory) -> None:
            def open_one(tp: TopicPartition) -> None:
                if directory.works and tp not in directory.logs:
                    with directory.directory_failure_scope():
                        directory.open_log(tp, config_of(tp.topic))

            _at_once(threads, open_one, inventory.found[directory])

        _at_once(len(self.directories), open_all, self.directories)
        if any(directory.closed for directory in self.directories):
            return
        self._note_absent(inventory)
        self._unread = inventory.unread
        for path, error in self.failed():
            self.take_offline(path, error)
        self._raise_if_none_works()

    def _note_absent(self, inventory: StartupInventory) -> None:
        """Which of the partitions that should be here are not: their logs are offline, or lost.

        While a directory is offline any of them may lie there. What is lost is noted all the same, since the next start
        may find no trace of that; what lies in the other directory is lost no more when that is back.
        """
        working = [directory for directory in self.directories if directory.works]
        absent = inventory.absent(working)
        if self.failures or len(working) < len(self.directories):
            self._offline = absent
        if inventory.hosted is not None:
            self._note_what_is_lost(inventory, absent, working)
        if inventory.unread:
            return  # what of those was lost nobody knows yet
        for directory in working:
            if directory.works:
                with directory.directory_failure_scope():
                    directory.forget_found_empty()

    def _note_what_is_lost(
        self, inventory: StartupInventory, absent: Mapping[TopicPartition, str], working: Iterable[LogDirectory]
    ) -> None:
        before: dict[TopicPartition, str] = {}
        for directory in working:
            with directory.directory_failure_scope():
                before |= lost_logs.read(self._files, directory.path)
        lost = inventory.lost(absent, before)
        if lost:
            _LOG.error("%d logs are gone or set aside in doubt, %s ...", len(lost), min(lost))
        if lost or before:  # also where they are the same: a directory may have been away, or empty
            self._note_lost(lost)

    # --- logs ----------------------------------------------------------------------------------------

    def logs(self) -> Mapping[TopicPartition, Log]:
        """Those that are open, in the directories that work, to look one up: threads open and remove some meanwhile."""
        if len(self.directories) == 1:
            return self.directories[0].logs  # a ChainMap takes ten times as long to look at
        return ChainMap(*(directory.logs for directory in self.directories))

    def every_log(self) -> list[tuple[TopicPartition, Log]]:
        """The same as they are now, to go through. Any thread's."""
        return [each for directory in self.directories for each in list(directory.logs.items())]

    def log_sizes(self) -> dict[Path, dict[TopicPartition, int] | StorageError]:
        """The bytes of each log by its directory; why, of a directory that does not work."""
        found: dict[Path, dict[TopicPartition, int] | StorageError] = {}
        for directory in self.directories:
            sizes = {tp: log.size_bytes for tp, log in list(directory.logs.items())}
            found[directory.path] = sizes if directory.failure is None else directory.failure
        return found | self.failures

    def get_or_create(self, tp: TopicPartition, topic_id: str, config: LogConfig, *, in_sync: bool = False) -> Log:
        """The log of this partition of this topic, with these settings; a new one in the directory with the fewest.

        One that belongs to an earlier topic of the same name is set aside first and never read. `in_sync`: the cluster
        counts on the records of this replica; where its log was set aside, that is taken again. StorageError where its
        log may lie in a directory that is offline; OutOfDescriptorsError where nothing is wrong and it may be asked for
        again; IneligibleReplicaError, with `in_sync`, where it is lost, or cannot be told from others;
        InvalidTopicError for a name that could lead out of the directory.
        """
        log_name(tp)
        directory = self._home_of(tp)
        if directory is not None and partition_metadata.differ(directory.logs[tp].topic_id, topic_id):
            earlier = directory.logs[tp]
            _LOG.warning("%s belongs to topic id %s, not %s: set aside", tp, earlier.topic_id, topic_id)
            if not earlier.topic_id_proven:
                self._note_lost(self._lost | {tp: topic_id})
            self.set_aside(tp)
            directory = None
        if directory is None:
            self._raise_if_elsewhere(tp, topic_id, in_sync)
            directory = (self._put_back(tp, topic_id, config) if in_sync else None) or self._create(tp, config)
        log = directory.logs[tp]
        if topic_id and (log.topic_id, log.topic_id_proven) != (topic_id, True):
            with directory.directory_failure_scope(reraise=True):
                log.assign_topic_id(topic_id)
        log.config = config
        return log

    def _create(self, tp: TopicPartition, config: LogConfig) -> LogDirectory:
        while working := [each for each in self.directories if each.works]:
            directory = min(working, key=lambda each: len(each.logs))
            try:
                for each in working:  # what is noted of an earlier one, wherever it was, holds of this one no more
                    with each.directory_failure_scope(reraise=True):
                        each.checkpoints.log_cut(tp, 0)
                with directory.directory_failure_scope(reraise=True):
                    directory.open_log(tp, config)
                    return directory
            except OutOfDescriptorsError:
                raise
            except StorageError:
                continue
        raise self._none_works()

    def _put_back(self, tp: TopicPartition, topic_id: str, config: LogConfig) -> LogDirectory | None:
        """A log of this very topic that was set aside when the cluster, by a ZooKeeper of earlier days, had it not."""
        working = (each for each in self.directories if each.works)
        strays = [(directory, name) for directory in working for name in directory.strays_of(tp, topic_id)]
        if not strays:
            return None
        if len(strays) > 1:
            places = ", ".join(str(directory.path / name) for directory, name in strays)
            raise IneligibleReplicaError(f"which of these is the log of {tp} cannot be told: {places}")
        ((directory, name),) = strays
        _LOG.warning("%s is this broker's again: %s is put back", tp, directory.path / name)
        try:
            with directory.directory_failure_scope(reraise=True):
                directory.put_back(tp, name, config)
        except OutOfDescriptorsError:
            raise
        except StorageError:
            self._offline[tp] = topic_id  # it lies there, under whichever name
            raise
        return directory

    def _raise_if_elsewhere(self, tp: TopicPartition, topic_id: str, in_sync: bool) -> None:
        if tp in self._offline and not partition_metadata.differ(self._offline[tp], topic_id):
            raise StorageError(f"the log of {tp} may lie in a directory that is offline: {self._failed_paths()}")
        if in_sync and tp.topic in self._unread and any(each.may_have_had(tp) for each in self.directories):
            raise IneligibleReplicaError(f"whether the log of {tp} is lost was not known when this broker started")
        if tp in self._lost and not partition_metadata.differ(self._lost[tp], topic_id):
            if in_sync:
                raise IneligibleReplicaError(
                    f"the log of {tp} is gone, or set aside in doubt, and the cluster still counts on its records"
                )
            self._note_lost({each: id_ for each, id_ in self._lost.items() if each != tp})

    def set_aside(self, tp: TopicPartition) -> Path:
        """Takes a log out of use but keeps its files; the directory that they are in now.

        StorageError; OutOfDescriptorsError where the log is still there as it was.
        """
        log_name(tp)
        directory = self._home_of(tp)
        if directory is None:
            raise StorageError(f"there is no log of {tp}")
        with directory.directory_failure_scope(reraise=True):
            return directory.set_aside(tp)
        raise AssertionError

    def delete(self, *tps: TopicPartition) -> None:
        """Nothing is known any more of these logs, whose files `remove_deleted_log` removes; others need nothing.

        StorageError; OutOfDescriptorsError where it is to be done again for some of them, of which nothing is lost yet.
        """
        for tp in tps:
            log_name(tp)
            self._offline.pop(tp, None)
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
        """Whether `remove_deleted_log` has something to do. Any thread's."""
        return any(directory.has_deleted_logs for directory in self.directories)

    def remove_deleted_log(self) -> bool:
        """Removes the files of one deleted log; that may take long. On any thread, but one. False: none for now."""
        for directory in self.directories:
            with directory.directory_failure_scope(later=True):
                if directory.remove_deleted_log():
                    return True
        return False

    def _home_of(self, tp: TopicPartition) -> LogDirectory | None:
        return next((directory for directory in self.directories if tp in directory.logs), None)

    # --- failures ------------------------------------------------------------------------------------

    def report(self, tp: TopicPartition, error: StorageError) -> None:
        """A call of this partition's log failed, and with it its directory. May be called on any thread.

        But where only a file descriptor was missing: then the log is as it was, and may be asked again.
        """
        if isinstance(error, OutOfDescriptorsError):
            return
        if directory := self._home_of(tp):
            directory.fail(error)

    @property
    def works(self) -> bool:
        """Whether any directory is left."""
        return any(directory.works for directory in self.directories)

    def failed(self) -> list[tuple[Path, StorageError]]:
        """Directories that have failed, and are still to be taken offline."""
        return [(each.path, each.failure) for each in self.directories if each.failure is not None]

    def take_offline(self, path: Path, error: StorageError) -> tuple[TopicPartition, ...]:
        """Gives a directory up until the next start: its files are closed, its lock is released.

        Returns the partitions that were there; their logs raise StorageError from now on. Nothing happens where the
        directory is offline already.
        """
        directory = next((each for each in self.directories if each.path == path), None)
        if directory is None:
            return ()
        directory.fail(error)
        _LOG.error("log directory %s is offline, and %d logs with it: %s", path, len(directory.logs), error)
        self.failures[path] = error
        self.directories = tuple(each for each in self.directories if each is not directory)
        directory.close(clean=False)
        gone = {tp: log.topic_id for tp, log in list(directory.logs.items())}
        self._offline |= gone
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
        """As last checkpointed, for the logs that are open."""
        found: dict[TopicPartition, int] = {}
        for directory in self.directories:
            offsets = directory.checkpoints.high_watermarks()
            found |= {tp: offset for tp, offset in offsets.items() if tp in directory.logs}
        return found

    def checkpoint_high_watermarks(self, committed: Mapping[TopicPartition, Committed]) -> None:
        """Replaces the checkpoints durably.

        May run on another thread; so may all checkpoints.
        """
        for directory in self.directories:
            with directory.directory_failure_scope(later=True):
                directory.checkpoints.write_high_watermarks(committed)

    def leaderships(self) -> dict[TopicPartition, Leadership]:
        """As last checkpointed. Where two directories know of one (its log was moved by hand), the later one."""
        found: dict[TopicPartition, Leadership] = {}
        for directory in self.directories:
            for tp, leadership in directory.checkpoints.leaderships.items():
                if tp not in found or leadership.partition_epoch > found[tp].partition_epoch:
                    found[tp] = leadership
        return found

    def checkpoint_leaderships(self, leaderships: Mapping[TopicPartition, Leadership]) -> None:
        """Replaces the checkpoints, each with what is known of the logs there: who has none here any more is out.

        OutOfDescriptorsError where one of them got no file descriptor: nothing has failed, and all is to be done again.
        """

        def checkpoint(directory: LogDirectory) -> None:
            mine = {tp: leaderships[tp] for tp in list(directory.logs) if tp in leaderships}
            directory.checkpoints.write_leaderships(mine)

        self._write_to_each(checkpoint)

    def checkpoint_recovery_points(self) -> None:
        """Notes up to where each log is synced."""
        for directory in self.directories:
            with directory.directory_failure_scope(later=True):
                directory.checkpoints.write_recovery_points()

    def checkpoint_log_starts(self) -> None:
        """Notes where logs start."""
        for directory in self.directories:
            with directory.directory_failure_scope(later=True):
                directory.checkpoints.write_log_starts()

    @property
    def has_unwritten_epochs(self) -> bool:
        """Whether `write_epochs` has something to do."""
        return any(directory.has_unwritten_epochs for directory in self.directories)

    def write_epochs(self) -> None:
        """Notes the leader epochs that have begun."""
        for directory in self.directories:
            with directory.directory_failure_scope(later=True):
                directory.write_epochs()

    def cleaner_offset(self, tp: TopicPartition) -> int:
        """Up to where a log is compacted; 0 where that is not known."""
        directory = self._home_of(tp)
        return 0 if directory is None else directory.checkpoints.cleaner_offset(tp)

    def note_cleaned(self, tp: TopicPartition, log: Log, offset: int, truncation_count: int) -> bool:
        """Notes, durably, that this very log is compacted up to `offset`; not if it has been cut since
        `truncation_count`.
        """
        noted = False
        if directory := self._home_of(tp):
            with directory.directory_failure_scope(later=True):
                noted = directory.checkpoints.write_cleaner_offset(tp, log, offset, truncation_count)
        return noted

    def _note_lost(self, lost: dict[TopicPartition, str]) -> None:
        self._write_to_each(lambda directory: lost_logs.write(self._files, directory.path, lost))
        self._lost = lost

    def _write_to_each(self, write: Callable[[LogDirectory], object]) -> None:
        """OutOfDescriptorsError, when all have had their turn, where one of them is to have it again."""
        wanting: OutOfDescriptorsError | None = None
        for directory in self.directories:
            with directory.directory_failure_scope():
                try:
                    write(directory)
                except OutOfDescriptorsError as error:
                    wanting = error
        if wanting is not None:
            raise wanting

    # --- session and end -----------------------------------------------------------------------------

    def read_session(self) -> str | None:
        """The ZooKeeper session of the process before this one."""
        for directory in self.directories:
            with directory.directory_failure_scope():
                if session := directory.read_session():
                    return session
        return None

    def write_session(self, session: str) -> None:
        """For the next process, into every directory. StorageError where none works any more."""
        for directory in self.directories:
            with directory.directory_failure_scope():
                directory.write_session(session)
        self._raise_if_none_works()

    def close(self, clean: bool = True) -> None:
        """Gives the directories back, each completed, synced and marked as such with `clean`, where it works.

        The first error is raised at the end.
        """
        errors = []
        for directory in self.directories:
            try:
                directory.close(clean)
            except StorageError as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _at_once(count: int, work: Callable[[_T], object], items: Iterable[_T]) -> None:
    """Works on so many items at the same time; for one at a time no thread is needed."""
    if count <= 1:
        for item in items:
            work(item)
    else:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(work, items))


def _has_owner(path: Path, files: Files) -> bool:
    try:
        return files.exists(path / meta_properties.FILE_NAME)
    except StorageError:
        return False
