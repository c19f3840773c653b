"""One log directory of a broker, on one disk: its identity, its checkpoints and its logs.

.lock                              flock: only one process uses the directory
meta.properties                    broker.id and cluster.id of the owner
boot.id                            the kernel's boot id of the last start; removed when a flush fails; empty from the
                                   removal of damaged data until the cluster has dealt with it
session.id                         the ZooKeeper session of the last start
found-empty                        the directory was empty when this broker first used it; removed when the replicas
                                   lost with the old contents are recorded
.kafka_cleanshutdown               the last process closed every log in order, and no log may lack records; removed
                                   while a process runs
*-checkpoint                       offsets and leaderships of the logs (`storage.directory.directory_checkpoints`)
lost-logs                          partitions whose logs are missing (`storage.directory.lost_logs`)
<topic>-<partition>/               a log
<topic>-<partition>.<hex>-delete/  a deleted log; the next start removes it if a crash interrupted its removal
<topic>-<partition>.<hex>-stray/   a stray log: it belongs to a topic that no longer exists
<topic>-<partition>.<hex>-future/  a log that a move from another directory fills (`storage.moves`)

A checkpoint is trusted only if the log agrees with it. A recovery point past the log end, or before the end of a log
that was closed in order, proves nothing, and the whole log is checked. A log start past the log end is ignored, because
obeying it would remove every record that is left.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator
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
from storage.log.log import Log, LogOwner
from storage.log_names import (
    DELETED,
    STRAY,
    log_name,
    named_aside,
    partition_named,
    partition_of_future,
    partition_set_aside,
    retired_name,
)
from storage.parallel import run_parallel
from tidelog.errors import DataDirectoryError, StorageError
from tidelog.model import TopicPartition

_LOG = logging.getLogger(__name__)

#: Logs that are flushed in parallel when a directory is closed, so that the file system commits its journal for many.
_CLOSING_THREADS = 8


class LogDirectory:
    """The logs of a broker on one disk.

    logs               the open logs; only `LogManager` changes them
    checkpoints        their checkpoint files
    previous_shutdown  how the previous process ended
    data_loss_marker   whether acknowledged records may be missing
    found_empty        the directory was empty at its first use, and the replicas lost with it are not recorded yet
    failure            why the directory is offline; None while it works. Set once, by any thread
    closed             no log is opened here any more
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
        #: The partitions whose log has changed since the last `take_changed`. Any thread adds, one thread removes.
        self._changed_logs: set[TopicPartition] = set()
        #: Epoch caches with unwritten epochs (`write_epochs`). The logs' owner appends, any thread removes.
        self._unwritten_epochs: deque[LeaderEpochs] = deque()
        self._files = files
        self._lock = lock
        #: How many logs are being opened on threads. The lock is kept until they are done.
        self._opening = 0
        self._releasable = False
        #: Deleted logs whose files still exist.
        self._deleted_logs: deque[Path] = deque()
        self._changed = threading.Condition()
        #: Partitions with a log that was set aside here, in this process or before (`named_aside`).
        self._set_aside = {tp for name in self.strays() if (tp := partition_set_aside(name)) is not None}

    @classmethod
    def open(cls, path: Path, files: Files, broker_id: int, cluster_id: str, boot_id: str | None) -> LogDirectory:
        """Take the directory for this broker until `close`; create it if it is missing. No log is opened.

        The clean-shutdown marker is removed. `boot_id` names the current boot of the kernel; None if it is unknown.
        DataDirectoryError if another process holds the directory, if it belongs to another broker or cluster, or if it
        holds logs but names no owner. StorageError if it cannot be written.
        """
        unnamed = [each for each in path.parents if not files.exists(each)]
        files.make_directory(path)
        lock = files.try_lock(path / LOCK)
        if lock is None:
            raise DataDirectoryError(f"{path} is in use by another process")
        try:
            is_new = not meta_properties.check(path, files, broker_id, cluster_id)
            if is_new:
                if any(partition_named(name) for name in files.names(path)):
                    raise DataDirectoryError(
                        f"{path} holds logs but no {meta_properties.FILE_NAME}, so the broker that owns them is unknown"
                    )
                # Written first and flushed, so that the next start knows it even if this one fails.
                files.replace(path / FOUND_EMPTY, b"")
                meta_properties.write(path, files, broker_id, cluster_id)
                for each in (path, *unnamed):  # a directory survives a crash only if its parent is flushed
                    files.fsync_directory(each.parent)
            previous_shutdown = PreviousShutdown.read(path, files, is_new=is_new, boot_id=boot_id)
            # Remove the marker before anything is written that it would falsely cover. The write of `boot.id` below
            # flushes the removal, because a directory that had the marker is never possibly short.
            files.remove(path / CLEAN_SHUTDOWN)
            directory = cls(path, files, lock, previous_shutdown, boot_id or "")
            if not directory.data_loss_marker.possibly_short:
                directory.data_loss_marker.clear_possibly_short()
            return directory
        except BaseException:
            lock.release()
            raise

    @property
    def works(self) -> bool:
        """Return whether the directory has neither failed nor been closed."""
        return self.failure is None and not self.closed

    def may_have_held(self, tp: TopicPartition) -> bool:
        """Return whether a log of the partition with committed records may have been here and is missing now.

        True for every partition while `found_empty` is set.
        """
        return self.found_empty or (tp not in self.logs and self.checkpoints.high_watermark(tp) > 0)

    def forget_found_empty(self) -> None:
        """Remove `found-empty`, because the lost replicas are recorded in `lost-logs` now. StorageError.

        Needs no flush: if a power failure restores the file, more replicas count as lost, and none fewer.
        """
        if self.found_empty:
            self._files.remove(self.path / FOUND_EMPTY)
            self.found_empty = False

    # --- logs ----------------------------------------------------------------------------------------

    def found(self) -> list[TopicPartition]:
        """Return the partitions that have a log here, open or not, in order."""
        named = ((tp, name) for name in self._files.names(self.path) if (tp := partition_named(name)) is not None)
        return sorted(tp for tp, name in named if self._files.is_directory(self.path / name))

    def strays(self) -> list[str]:
        """Return the directory names of stray logs."""
        return [name for name in self._files.names(self.path) if name.endswith(STRAY)]

    def strays_of(self, tp: TopicPartition, topic_id: str) -> list[str]:
        """Return the directory names of stray logs of this partition and topic id."""
        aside = named_aside(tp)
        if aside not in self._set_aside:
            return []
        named = (name for name in self.strays() if partition_set_aside(name) == aside)
        return [name for name in named if partition_metadata.read(self._files, self.path / name).topic_id == topic_id]

    def metadata_of(self, tp: TopicPartition) -> partition_metadata.PartitionMetadata:
        """Return the topic id in the log's `partition.metadata`, and whether it is proven. The log need not be open."""
        return partition_metadata.read(self._files, self.path / log_name(tp))

    def is_empty_log(self, tp: TopicPartition) -> bool:
        """Return whether no segment's `.log`, under any second suffix, holds a byte, and no topic id is recorded."""
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
        """Open a log by its checkpoints, add it to `logs` and return it; recover or create it if needed.

        Slow after a crash. Several threads may open logs at the same time. StorageError, also if the directory was
        closed meanwhile. InvalidTopicError.
        """
        with self._changed:
            if self.closed:
                raise StorageError(f"{self.path} is closed")
            self._opening += 1
        try:
            log = self._open(tp, config)
            with self._changed:
                if self._releasable:
                    log.abandon()
                    raise StorageError(f"{self.path} was closed while {tp} was opened")
                self.logs[tp] = log
            self.log_changed(tp)
            if self.failure is not None:
                log.fail(self.failure)
            return log
        finally:
            with self._changed:
                self._opening -= 1
                self._changed.notify_all()
                self._release_if_unused()

    def _release_if_unused(self) -> None:
        if self._releasable and not self._opening:
            self._lock.release()

    def _open(self, tp: TopicPartition, config: LogConfig) -> Log:
        directory = self.path / log_name(tp)
        checkpoints = self.checkpoints
        recorded, log_start = checkpoints.recovery_point(tp), checkpoints.log_start(tp)

        def opened(recovery_point: int, *, clean: bool) -> Log:
            return Log.open(
                directory,
                config,
                self._files,
                recovery_point=recovery_point,
                clean=clean,
                cleaned_to=checkpoints.cleaner_offset(tp),
                rewrite=self.previous_shutdown.flush_had_failed,
                owner=_Owner(self, tp),
            )

        clean, recovery_point = self.previous_shutdown.clean and recorded is not None, recorded or 0
        log = opened(recovery_point, clean=clean)
        if recovery_point > log.log_end_offset or (clean and recovery_point < log.log_end_offset):
            _LOG.error(
                "%s: the recovery point is offset %d, but the log ends at %d: the whole log is checked",
                directory, recovery_point, log.log_end_offset,
            )  # fmt: skip
            if recovery_point > log.log_end_offset:
                self.data_loss_marker.record_loss()
            log.abandon()
            checkpoints.lower_except_high_watermark(tp, 0)
            log = opened(0, clean=False)
        if checkpoints.high_watermark(tp) > log.log_end_offset:
            # Recorded until the cluster has dealt with the loss, because the high watermark may be lowered before that.
            self.data_loss_marker.record_loss()
        if checkpoints.cleaner_offset(tp) > log.log_end_offset:
            checkpoints.lower_except_high_watermark(
                tp, 0
            )  # written for another log: it must not hold when this log reaches that offset
        if log_start > log.log_end_offset:
            _LOG.error(
                "%s: ignored the log start offset %d, which lies past the log end %d",
                directory,
                log_start,
                log.log_end_offset,
            )
            checkpoints.remove_log_start(tp)  # it must not hold when this log reaches that offset
        else:
            log.raise_log_start(log_start)
        return log

    # --- logs that are no longer in use --------------------------------------------------------------

    def finish_deletions(self) -> None:
        """Remove the directories of deleted logs, whose removal did not end in the previous process. StorageError."""
        for name in self._files.names(self.path):
            if name.endswith(DELETED):
                self._files.remove_directory(self.path / name)

    def set_aside(self, tp: TopicPartition) -> Path:
        """Close a log, remove its checkpoints and rename its directory to a stray's name. Return the new directory."""
        self._close_logs(tp)
        self._set_aside.add(named_aside(tp))
        return self._rename(tp, STRAY)

    def put_back(self, tp: TopicPartition, stray: str, config: LogConfig) -> None:
        """Rename a stray log back to its name and open it. After an OutOfDescriptorsError the log is a stray again.

        A log under its own name that is not open would let `LogManager` create a second log beside it.
        """
        self._files.rename(self.path / stray, self.path / log_name(tp))
        try:
            self.open_log(tp, config)
        except OutOfDescriptorsError:
            self._files.rename(self.path / log_name(tp), self.path / stray)
            raise

    def delete(self, *tps: TopicPartition) -> None:
        """Close these logs and rename their directories.

        One flush of each checkpoint removes the entries of all of them.

        The directories are renamed, so that a crash never leaves half a log under the partition's name.
        `remove_deleted_log` removes the files later.
        """
        self._close_logs(*tps)
        self._deleted_logs += [self._rename(tp, DELETED) for tp in tps]

    def future_logs(self) -> list[tuple[TopicPartition, str]]:
        """Return the partition and the directory name of each future log here."""
        named = ((partition_of_future(name), name) for name in self._files.names(self.path))
        return [(tp, name) for tp, name in named if tp is not None]

    def delete_directory(self, name: str, tp: TopicPartition) -> None:
        """Rename the directory of a log of the partition that is not open here; its files are removed later."""
        retired = self.path / retired_name(tp, DELETED)
        self._files.rename(self.path / name, retired)
        self._deleted_logs.append(retired)

    def delete_replaced(self, tp: TopicPartition) -> None:
        """Delete the log of the partition, which is not in `logs` any more, because another directory has a later one.

        The rename is flushed first. With the old log under its name and without its checkpoints, a start after a
        power failure could take an outdated high watermark for the partition. StorageError; the call may be repeated
        after an OutOfDescriptorsError.
        """
        if self._files.exists(self.path / log_name(tp)):
            self.delete_directory(log_name(tp), tp)
        self._files.fsync_directory(self.path)
        self.checkpoints.remove_logs(tp)

    @property
    def has_deleted_logs(self) -> bool:
        """Return whether `remove_deleted_log` has something to do."""
        return bool(self._deleted_logs) and self.works

    def remove_deleted_log(self) -> bool:
        """Remove the files of one deleted log, which may take long. Return False, and do nothing, if none is left.

        The same holds if the directory is offline or closed. Any thread may call this, one at a time. The next start
        removes logs that are left. StorageError; OutOfDescriptorsError means that the call may be repeated later.
        """
        if not self.has_deleted_logs:
            return False
        self._files.remove_directory(self._deleted_logs[0])
        self._deleted_logs.popleft()
        return True

    def _rename(self, tp: TopicPartition, kind: str) -> Path:
        retired = self.path / retired_name(tp, kind)
        self._files.rename(self.path / log_name(tp), retired)
        return retired

    def _close_logs(self, *tps: TopicPartition) -> None:
        """Remove the checkpoints of the logs and close them without a flush.

        After an error all of them are still open.
        """
        for log in self.checkpoints.remove_logs(*tps):
            log.abandon()

    def log_changed(self, tp: TopicPartition) -> None:
        """Note that the partition's log may have to be flushed. Any thread may call this."""
        self._changed_logs.add(tp)

    def take_changed(self) -> set[TopicPartition]:
        """Return the partitions whose log was opened or has changed since the last call.

        Any thread may call this, one at a time.
        """
        changed = self._changed_logs.copy()
        # Removed before the caller visits the logs, so that a change after its visit is noted again.
        self._changed_logs.difference_update(changed)
        return changed

    def epoch_begun(self, epochs: LeaderEpochs) -> None:
        """Note that a leader epoch has begun in a log of this directory, so that `write_epochs` writes it."""
        self._unwritten_epochs.append(epochs)

    @property
    def has_unwritten_epochs(self) -> bool:
        """Return whether leader epochs have begun that `write_epochs` has not written."""
        return bool(self._unwritten_epochs)

    def write_epochs(self) -> None:
        """Write the epoch files of logs in which a leader epoch has begun. Any thread may call this, one at a time."""
        while self._unwritten_epochs:
            self._unwritten_epochs[0].write()
            self._unwritten_epochs.popleft()

    # --- session and end -----------------------------------------------------------------------------

    def read_session(self) -> str | None:
        """Return the ZooKeeper session that the previous process wrote; None if there is none."""
        data = self._files.read(self.path / SESSION_ID)
        return data.decode("utf-8", "replace").strip() or None if data is not None else None

    def write_session(self, session: str) -> None:
        self._files.replace(self.path / SESSION_ID, f"{session}\n".encode())

    def fail(self, error: StorageError) -> bool:
        """Take the directory offline, so that its logs raise StorageError. Return False if it was offline already."""
        if self.failure is not None:
            return False
        with self._changed:
            self.failure = error
            self._changed.notify_all()
        for log in list(self.logs.values()):
            log.fail(error)
        return True

    @contextmanager
    def directory_failure_scope(self, *, reraise: bool = False, later: bool = False) -> Iterator[None]:
        """Take the directory offline (`fail`) if the enclosed code raises a StorageError, and suppress the error.

        With `reraise` the error is raised again as well. With `later` or `reraise` an OutOfDescriptorsError is no
        failure: with `later` the code runs again soon, and with `reraise` the caller may repeat it. A closed directory
        does not fail.
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
        """Close all logs and release the directory. With `clean`, flush them first and write the clean-shutdown marker.

        The marker is not written after a storage error, so that the next start recovers. The first error is raised at
        the end. The marker is also omitted if logs from before a crash were not opened and therefore not checked, and
        if records may be missing or a flush failed.

        The call waits for logs that are just being opened. If the disk has failed, the call does not wait, because that
        may take forever; the opening thread then closes its log itself and releases the directory.
        """
        with self._changed:
            self.closed = True
            self._changed.wait_for(lambda: self._opening == 0 or self.failure is not None)
            self._releasable = True
        clean = clean and self.failure is None
        failure = _close_all(self.logs.values(), clean)
        try:
            if clean and failure is None:
                self.checkpoints.write_log_starts()
                self.checkpoints.write_recovery_points()
                checked = self.previous_shutdown.clean or self.logs.keys() >= set(self.found())
                if checked and not self.data_loss_marker.possibly_short and not self.data_loss_marker.flush_failed:
                    self._files.replace(self.path / CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
        finally:
            with self._changed:
                self._release_if_unused()
        if failure is not None:
            raise failure


class _Owner(LogOwner):
    """Has the directory record what happens to one of its logs."""

    __slots__ = ("_directory", "_tp")

    def __init__(self, directory: LogDirectory, tp: TopicPartition) -> None:
        self._directory = directory
        self._tp = tp

    def truncation(self, offset: int) -> None:
        self._directory.checkpoints.lower_to(self._tp, offset)

    def flush_failed(self) -> None:
        self._directory.data_loss_marker.record_flush_failure()

    def changed(self) -> None:
        self._directory.log_changed(self._tp)

    def loss(self) -> None:
        self._directory.data_loss_marker.record_loss()

    def epoch_begun(self, epochs: LeaderEpochs) -> None:
        self._directory.epoch_begun(epochs)


def _close_all(logs: Iterable[Log], clean: bool) -> StorageError | None:
    """Close all logs in parallel, with `clean` after a flush. Return an error; None if all were closed."""
    errors: list[StorageError] = []

    def close(log: Log) -> None:
        try:
            if clean:
                log.close()
            else:
                log.abandon()
        except StorageError as error:
            errors.append(error)

    run_parallel(_CLOSING_THREADS, close, logs)
    return errors[0] if errors else None
