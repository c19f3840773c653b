"""One log directory of a broker, on one disk: its identity, its checkpoints and its logs.

.lock                              flock: one process at a time
meta.properties                    whose it is: broker.id and cluster.id
boot.id                            the kernel's boot id of the last start; gone once a sync has failed, empty from when
                                   something damaged was cut off until the cluster has dealt with that
session.id                         the ZooKeeper session of the last start
found-empty                        nothing was in it when it was taken; until it is noted what was lost with that
.kafka_cleanshutdown               the last process closed every log in order and left no doubt; removed while one runs
*-checkpoint                       what is noted of its logs (`storage.directory.directory_checkpoints`)
<topic>-<partition>/               a log
<topic>-<partition>.<hex>-delete/  a log on its way out; removed at the next start if a crash came between
<topic>-<partition>.<hex>-stray/   a log that was set aside: it belongs to a topic that no longer exists

What a checkpoint says is believed where the log bears it out. A recovery point past the end of the log vouches for
nothing, nor does one before the end of a log that was closed in order, so that log is checked from its beginning; a log
start past the end is passed over, because to obey it would mean to throw away every record that is left.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from storage import partition_metadata
from storage.configs.log_config import LogConfig
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.directory import meta_properties
from storage.directory.data_loss_marker import DataLossMarker
from storage.directory.directory_checkpoints import DirectoryCheckpoints
from storage.directory.previous_shutdown import PreviousShutdown
from storage.file_names import CLEAN_SHUTDOWN, FOUND_EMPTY, LOCK, LOG_SUFFIX, SESSION_ID
from storage.files import Files, Lock
from storage.log.leader_epochs import LeaderEpochs
from storage.log.log import Log
from storage.log_names import DELETED, STRAY, log_name, named_aside, partition_named, partition_set_aside, retired_name
from tidelog.errors import DataDirectoryError, StorageError
from tidelog.model import TopicPartition

_LOG = logging.getLogger(__name__)

#: Logs that are synced at the same time when a directory is closed: the disk then writes its journal once for many.
_CLOSING_THREADS = 8


class LogDirectory:
    """The logs of a broker on one disk.

    logs         those that are open; changed by `LogManager` alone
    checkpoints  what is noted of them
    last_life    how the process ended that had it before this one
    doubt        whether they may lack something, and since when
    found_empty  it was nobody's, and what was lost with what it may have held is not noted yet
    failure      why it is offline; None while it works. Set once, by any thread
    closed       no log is opened here any more
    """

    def __init__(self, path: Path, files: Files, lock: Lock, previous_shutdown: PreviousShutdown, boot_id: str) -> None:
        self.path = path
        self.previous_shutdown = previous_shutdown
        self.found_empty = files.exists(path / FOUND_EMPTY)
        self.data_loss_marker = DataLossMarker(path, files, boot_id, possibly_short=previous_shutdown.possibly_short)
        self.failure: StorageError | None = None
        self.closed = False
        self.logs: dict[TopicPartition, Log] = {}
        self.checkpoints = DirectoryCheckpoints(path, files, self.logs)
        #: Whose files are to be written (`write_epochs`); filled by the logs' owner, emptied by any thread.
        self._begun: deque[LeaderEpochs] = deque()
        self._files = files
        self._lock = lock
        #: Logs that threads are opening right now; the directory is nobody else's before they are done.
        self._opening = 0
        self._given_back = False
        #: Deleted logs whose files are there still.
        self._doomed: deque[Path] = deque()
        self._settled = threading.Condition()
        #: Of which a log was set aside here, in this life or an earlier one (`named_aside`).
        self._left = {tp for name in self.strays() if (tp := partition_set_aside(name)) is not None}

    @classmethod
    def open(cls, path: Path, files: Files, broker_id: int, cluster_id: str, boot_id: str | None) -> LogDirectory:
        """Takes the directory (created where it is missing) for this broker until `close`.

        `boot_id` names the run of the machine's kernel; None where it cannot be known. DataDirectoryError where
        another process holds the directory, or where it belongs to another broker or cluster; StorageError where it
        cannot be written.
        """
        unnamed = [each for each in path.parents if not files.exists(each)]
        files.make_directory(path)
        lock = files.try_lock(path / LOCK)
        if lock is None:
            raise DataDirectoryError(f"{path} is in use by another process")
        try:
            newborn = not meta_properties.check(path, files, broker_id, cluster_id)
            if newborn:
                if any(partition_named(name) for name in files.names(path)):
                    raise DataDirectoryError(
                        f"{path} holds logs but no {meta_properties.FILE_NAME}; it cannot be told whose they are"
                    )
                # First, and on the disk: however this start ends, the next one knows.
                files.replace(path / FOUND_EMPTY, b"")
                meta_properties.write(path, files, broker_id, cluster_id)
                for each in (path, *unnamed):  # without its name nothing in it is on the disk
                    files.sync_directory(each.parent)
            previous_shutdown = PreviousShutdown.read(path, files, newborn=newborn, boot_id=boot_id)
            # The marker goes, durably, before anything is written that it would vouch for.
            files.remove(path / CLEAN_SHUTDOWN)
            directory = cls(path, files, lock, previous_shutdown, boot_id or "")
            if not directory.data_loss_marker.possibly_short:
                directory.data_loss_marker.vouch()
            return directory
        except BaseException:
            lock.release()
            raise

    @property
    def works(self) -> bool:
        """Neither failed nor closed."""
        return self.failure is None and not self.closed

    def may_have_had(self, tp: TopicPartition) -> bool:
        """Whether a log with something committed may have been here that is not."""
        return self.found_empty or (tp not in self.logs and self.checkpoints.high_watermark(tp) > 0)

    def forget_found_empty(self) -> None:
        """What was lost is noted (`storage.directory.lost_logs`). StorageError.

        Unsynced: where a power failure brings the file back, more counts as lost of what is not here, and nothing less.
        """
        if self.found_empty:
            self._files.remove(self.path / FOUND_EMPTY)
            self.found_empty = False

    # --- logs ----------------------------------------------------------------------------------------

    def found(self) -> list[TopicPartition]:
        """The partitions that have a log here, open or not, in their order."""
        named = ((tp, name) for name in self._files.names(self.path) if (tp := partition_named(name)) is not None)
        return sorted(tp for tp, name in named if self._files.is_directory(self.path / name))

    def strays(self) -> list[str]:
        """The names of the logs that were set aside."""
        return [name for name in self._files.names(self.path) if name.endswith(STRAY)]

    def strays_of(self, tp: TopicPartition, topic_id: str) -> list[str]:
        """The names of the logs of this partition of this very topic that were set aside."""
        aside = named_aside(tp)
        if aside not in self._left:
            return []
        named = (name for name in self.strays() if partition_set_aside(name) == aside)
        return [name for name in named if partition_metadata.read(self._files, self.path / name).topic_id == topic_id]

    def metadata_of(self, tp: TopicPartition) -> partition_metadata.PartitionMetadata:
        """Which topic the log belongs to, open or not."""
        return partition_metadata.read(self._files, self.path / log_name(tp))

    def is_hollow(self, tp: TopicPartition) -> bool:
        """Nothing was ever written to the log, under any suffix, and nothing says of which topic it is."""
        directory = self.path / log_name(tp)
        for name in self._files.names(directory):
            if LOG_SUFFIX in name:
                file = self._files.open(directory / name, create=False)
                size = file.size()
                file.close()
                if size:
                    return False
        return not self.metadata_of(tp).topic_id

    def open_log(self, tp: TopicPartition, config: LogConfig) -> Log:
        """Opens a log, recovers it where it must be, or creates it. StorageError; InvalidTopicError.

        Slow after a crash. Several threads may open logs at once. StorageError too where the directory was closed
        meanwhile.
        """
        with self._settled:
            if self.closed:
                raise StorageError(f"{self.path} is closed")
            self._opening += 1
        try:
            log = self._open(tp, config)
            with self._settled:
                if self._given_back:
                    log.abandon()
                    raise StorageError(f"{self.path} was closed while {tp} was opened")
                self.logs[tp] = log
            if self.failure is not None:
                log.fail(self.failure)
            return log
        finally:
            with self._settled:
                self._opening -= 1
                self._settled.notify_all()
                self._release_if_settled()

    def _release_if_settled(self) -> None:
        if self._given_back and not self._opening:
            self._lock.release()

    def _open(self, tp: TopicPartition, config: LogConfig) -> Log:
        directory = self.path / log_name(tp)
        checkpoints = self.checkpoints
        noted, log_start = checkpoints.recovery_point(tp), checkpoints.log_start(tp)

        def opened(recovery_point: int, *, clean: bool) -> Log:
            return Log.open(
                directory,
                config,
                self._files,
                recovery_point=recovery_point,
                clean=clean,
                cleaned_to=checkpoints.cleaner_offset(tp),
                rewrite=self.previous_shutdown.sync_had_failed,
                on_cut=lambda offset: checkpoints.log_cut(tp, offset),
                on_sync_failed=self.data_loss_marker.note_failed_sync,
                on_loss=self.data_loss_marker.note_loss,
            )

        clean, recovery_point = self.previous_shutdown.clean and noted is not None, noted or 0
        log = opened(recovery_point, clean=clean)
        if recovery_point > log.log_end_offset or (clean and recovery_point < log.log_end_offset):
            _LOG.error(
                "%s was synced up to offset %d, but ends at %d: it is checked from its beginning",
                directory, recovery_point, log.log_end_offset,
            )  # fmt: skip
            if recovery_point > log.log_end_offset:
                self.data_loss_marker.note_loss()
            log.abandon()
            checkpoints.distrust(tp, 0)
            log = opened(0, clean=False)
        if checkpoints.high_watermark(tp) > log.log_end_offset:
            # until the cluster has dealt with it; the high watermark may be given up before
            self.data_loss_marker.note_loss()
        if checkpoints.cleaner_offset(tp) > log.log_end_offset:
            checkpoints.distrust(tp, 0)  # of another log than this one: it must not hold once this one is as long
        if log_start > log.log_end_offset:
            _LOG.error("%s ends at %d: not cut at its log start %d", directory, log.log_end_offset, log_start)
            checkpoints.forget_log_start(tp)  # it must not hold once this one is as long
        else:
            log.raise_log_start(log_start)
        log.leader_epochs.on_begun = self._begun.append
        return log

    # --- logs that go out of use ---------------------------------------------------------------------

    def finish_deletions(self) -> None:
        """Removes what a crash left of logs that were being deleted."""
        for name in self._files.names(self.path):
            if name.endswith(DELETED):
                self._files.remove_directory(self.path / name)

    def set_aside(self, tp: TopicPartition) -> Path:
        """Takes a log out of use but keeps its files; the directory that they are in now."""
        self._take_out_of_use(tp)
        self._left.add(named_aside(tp))
        return self._rename(tp, STRAY)

    def put_back(self, tp: TopicPartition, stray: str, config: LogConfig) -> None:
        """Gives a log that was set aside its name again, and opens it. Set aside still after an OutOfDescriptorsError.

        Under its name, and not open, another one might be made beside it.
        """
        self._files.rename(self.path / stray, self.path / log_name(tp))
        try:
            self.open_log(tp, config)
        except OutOfDescriptorsError:
            self._files.rename(self.path / log_name(tp), self.path / stray)
            raise

    def delete(self, *tps: TopicPartition) -> None:
        """Nothing is found of these logs any more. Renamed, so that no crash leaves half a log of the partition's name.

        All at once, since what the checkpoints hold of them is forgotten with one sync, and not with one for each.
        Their files go with `remove_deleted_log`.
        """
        self._take_out_of_use(*tps)
        self._doomed += [self._rename(tp, DELETED) for tp in tps]

    @property
    def has_deleted_logs(self) -> bool:
        """Whether `remove_deleted_log` has something to do."""
        return bool(self._doomed) and self.works

    def remove_deleted_log(self) -> bool:
        """Removes the files of one deleted log, which may take long; False where none is left. On any thread, but one.

        What is left when the process ends goes at the next start. StorageError; OutOfDescriptorsError: another time.
        """
        if not self.has_deleted_logs:
            return False
        self._files.remove_directory(self._doomed[0])
        self._doomed.popleft()
        return True

    def _rename(self, tp: TopicPartition, kind: str) -> Path:
        retired = self.path / retired_name(tp, kind)
        self._files.rename(self.path / log_name(tp), retired)
        return retired

    def _take_out_of_use(self, *tps: TopicPartition) -> None:
        """After an OutOfDescriptorsError the logs are there as before."""
        for log in self.checkpoints.take_out(*tps):
            log.abandon()

    @property
    def has_unwritten_epochs(self) -> bool:
        """Leader epochs have begun since `write_epochs`."""
        return bool(self._begun)

    def write_epochs(self) -> None:
        """Has the logs' files say which leader epochs have begun. Any thread's, one at a time."""
        while self._begun:
            self._begun[0].write()
            self._begun.popleft()

    # --- session and end -----------------------------------------------------------------------------

    def read_session(self) -> str | None:
        """What `write_session` last wrote: the ZooKeeper session of the process before this one."""
        data = self._files.read(self.path / SESSION_ID)
        return data.decode("utf-8", "replace").strip() or None if data is not None else None

    def write_session(self, session: str) -> None:
        self._files.replace(self.path / SESSION_ID, f"{session}\n".encode())

    def fail(self, error: StorageError) -> bool:
        """The disk has failed: from now on every log here raises StorageError. False where that was known already."""
        if self.failure is not None:
            return False
        with self._settled:
            self.failure = error
            self._settled.notify_all()
        for log in list(self.logs.values()):
            log.fail(error)
        return True

    @contextmanager
    def directory_failure_scope(self, *, reraise: bool = False, later: bool = False) -> Iterator[None]:
        """A StorageError of what runs here is this directory's failure, and nobody else's.

        `later`: what runs here is done again before long, so that it may wait for a file descriptor. With `reraise`
        who asked is told of a missing one, and may ask again: what runs here has left all as it was.
        """
        try:
            yield
        except StorageError as error:
            may_wait = (later or reraise) and isinstance(error, OutOfDescriptorsError)
            if not may_wait and not self.closed:
                self.fail(error)
            if reraise:
                raise

    def close(self, clean: bool = True) -> None:
        """Gives the directory back. `clean`: first every log is completed and synced, then the marker written.

        After a storage error the marker stays away, and the next start recovers; the first error is raised at the end.
        It stays away too where logs that a crash left behind have not been opened, for nobody has checked those; and
        from one that may be short or in which a sync has failed, for it would say to the next process that nothing
        is missing. Logs that are just being opened are waited for, but not where the disk has failed, which may be for
        ever; who opens one abandons it then.
        """
        with self._settled:
            self.closed = True
            self._settled.wait_for(lambda: self._opening == 0 or self.failure is not None)
            self._given_back = True
        clean = clean and self.failure is None
        failure = _close_all(self.logs.values(), clean)
        try:
            if clean and failure is None:
                self.checkpoints.write_log_starts()
                self.checkpoints.write_recovery_points()
                checked = self.previous_shutdown.clean or self.logs.keys() >= set(self.found())
                if checked and not self.data_loss_marker.possibly_short and not self.data_loss_marker.sync_failed:
                    self._files.replace(self.path / CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
        finally:
            with self._settled:
                self._release_if_settled()
        if failure is not None:
            raise failure


def _close_all(logs: Iterable[Log], clean: bool) -> StorageError | None:
    """The first error of them, where there is one."""

    def close(log: Log) -> StorageError | None:
        try:
            if clean:
                log.close()
            else:
                log.abandon()
        except StorageError as error:
            return error
        return None

    with ThreadPoolExecutor(_CLOSING_THREADS) as threads:
        return next(filter(None, list(threads.map(close, list(logs)))), None)
