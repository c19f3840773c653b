"""The future log of a move: the log in the target directory, until it replaces the current log."""

from __future__ import annotations

import os
from pathlib import Path

from storage.configs.log_config import LogConfig
from storage.directory.log_directory import LogDirectory
from storage.files import Files
from storage.log.leader_epochs import LeaderEpochs
from storage.log.log import Log, LogOwner
from storage.log_names import log_name
from storage.moves import move_marker
from tidelog.errors import StorageError
from tidelog.model import TopicPartition


class FutureLog(LogOwner):
    """A log with the name `<topic>-<partition>.<hex>-future`, which is filled from the partition's current log.

    Only the move calls the methods, one at a time, on any thread, except those of `LogOwner`. The records in this log
    are also in the current one, so that neither a loss nor a failed flush here is a loss of the directory.

    target      the log directory in which this log lies
    path        the directory of this log
    cancelled   the move must end, and the files be removed. Set once, by any thread
    is_current  this log has replaced the current one, so that it is an ordinary log of its directory
    """

    def __init__(self, tp: TopicPartition, target: LogDirectory, name: str, files: Files) -> None:
        self.topic_partition = tp
        self.target = target
        self.path = target.path / name
        self.cancelled = False
        self.is_current = False
        self._files = files
        self._log: Log | None = None
        self._mark = move_marker.MoveMark()
        #: The directory whose log has the mark of `mark_source`.
        self._marked_source: LogDirectory | None = None

    @property
    def log(self) -> Log:
        """Return the open log."""
        assert self._log is not None
        return self._log

    @property
    def end_offset(self) -> int | None:
        """Return the log end offset; None if the log is not open. Any thread may call this."""
        log = self._log  # another thread may close it meanwhile
        return None if log is None else log.log_end_offset

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the batches that are copied, as far as they are known. Any thread may call this."""
        log = self._log  # another thread may close it meanwhile
        return 0 if log is None else log.size_bytes

    def open(self, config: LogConfig, topic_id: str, cleaned_to: int) -> None:
        """Recover and open the log, or create it. StorageError.

        A log of another topic id is emptied. So is the copy of a compacted log from before a restart, because the
        current log may have been compacted since, so that a tombstone was removed before it was copied.

        cleaned_to   the offset up to which the current log is compacted, and below which offsets may be missing
        """
        log = Log.open(self.path, config, self._files, recovery_point=0, clean=False, cleaned_to=cleaned_to, owner=self)
        try:
            compacted = config.compact or cleaned_to > 0
            if log.topic_id != topic_id or (compacted and log.log_end_offset):
                log.truncate_fully_and_start_at(0)
                log.assign_topic_id(topic_id)
        except StorageError:
            log.abandon()
            raise
        self._log = log

    # --- the owner of the log ------------------------------------------------------------------------

    def truncation(self, offset: int) -> None:
        self.target.checkpoints.lower_to(self.topic_partition, offset)

    def flush_failed(self) -> None:
        if self.is_current:
            self.target.data_loss_marker.record_flush_failure()

    def changed(self) -> None:
        self.target.log_changed(self.topic_partition)

    def epoch_begun(self, epochs: LeaderEpochs) -> None:
        if self.is_current:  # before that, each flush writes the epochs
            self.target.epoch_begun(epochs)

    # --- the move ------------------------------------------------------------------------------------

    def mark(self, source: LogDirectory, before: move_marker.MoveMark) -> None:
        """Record, flushed, that this log is moved from `source`, where the log has the mark `before`."""
        self._mark = before.after_move(*(Path(os.path.abspath(each.path)) for each in (source, self.target)))
        move_marker.write(self._files, self.path, self._mark)

    def mark_source(self, source: LogDirectory) -> None:
        """Record, flushed, in the log in `source` that this log may take its place. StorageError of `source`."""
        if self._marked_source is not source:
            self._marked_source = source  # set first, because the file may exist after an error
            move_marker.write_target(self._files, self._log_in(source), Path(os.path.abspath(self.target.path)))

    def _unmark_source(self) -> None:
        source, self._marked_source = self._marked_source, None
        if source is not None and source.works:
            with source.directory_failure_scope(later=True):
                move_marker.remove_target(self._files, self._log_in(source))

    def _log_in(self, directory: LogDirectory) -> Path:
        return directory.path / log_name(self.topic_partition)

    def become_current(self) -> None:
        """Give the directory the name of the partition's log. The rename alone decides which log a restart takes."""
        self.log.rename_to(self._log_in(self.target))
        self.path = self.log.directory
        self.is_current = True

    def unmark(self) -> None:
        """Remove the record of `mark`, because the log in the source is gone, unless still earlier logs may be left."""
        if len(self._mark.directories) == 1:
            move_marker.remove(self._files, self.path)

    def close(self) -> None:
        """Close the files without a flush, and remove the mark of the source. The next start goes on with the log."""
        if not self.is_current:
            self._unmark_source()
            if self._log is not None:
                self._log.abandon()
                self._log = None

    def discard(self) -> None:
        """Close the log and rename its directory, so that the files are removed later. StorageError.

        In an offline directory nothing is changed. A start at which the directory works again finds the log.
        """
        self.close()
        if not self.is_current and self.target.works:
            self.target.checkpoints.forget_incoming(self.topic_partition)
            if self._files.exists(self.path):
                self.target.delete_directory(self.path.name, self.topic_partition)
