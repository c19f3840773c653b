"""One data directory of one broker: its identity, its checkpoints and its logs.

.lock                              flock: one process at a time
meta.properties                    whose it is: broker.id and cluster.id
boot.id                            the kernel's boot id of the last start
session.id                         the ZooKeeper session of the last start
.kafka_cleanshutdown               the last process closed every log in order; removed while one runs
recovery-point-offset-checkpoint   up to where each log is synced
replication-offset-checkpoint      high watermarks
log-start-offset-checkpoint        log starts that lie inside a segment
<topic>-<partition>/               a log
<topic>-<partition>.<hex>-delete/  a log on its way out; removed at the next start if a crash came between
<topic>-<partition>.<hex>-stray/   a log that was set aside: it belongs to a topic that no longer exists
"""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from storage.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, read_offsets, write_offsets
from storage.config import LogConfig
from storage.files import Files, Lock
from storage.log import Log
from tidelog.errors import DataDirectoryError, InvalidTopicError, StorageError
from tidelog.model import TopicPartition, validate_topic

_LOG = logging.getLogger(__name__)

LOCK, META, BOOT_ID, SESSION_ID, CLEAN_SHUTDOWN = (
    ".lock",
    "meta.properties",
    "boot.id",
    "session.id",
    ".kafka_cleanshutdown",
)
_DELETED, _STRAY = "-delete", "-stray"
_LOG_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})\Z")
_MAX_NAME = 255
#: Logs that are synced at the same time when a directory is closed: the disk then writes its journal once for many.
_CLOSING_THREADS = 8

ConfigOf = Callable[[str], LogConfig]
Progress = Callable[[int, int], None]


class LogDirectory:
    """The logs of a broker on one disk.

    clean           the last process left its marker, so no log needs recovery
    possibly_short  the machine may have gone down since: what was not synced may be missing. False after a clean
                    shutdown, and after one that only ended the process, since then the page cache survived.
    """

    def __init__(
        self,
        path: Path,
        files: Files,
        lock: Lock,
        *,
        broker_id: int,
        cluster_id: str,
        clean: bool,
        possibly_short: bool,
    ) -> None:
        self.path = path
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.clean = clean
        self.possibly_short = possibly_short
        self._files = files
        self._lock = lock
        self._logs: dict[TopicPartition, Log] = {}
        #: Held while a log is opened; a directory that is closed opens no more.
        self._opening = threading.Lock()
        self._closed = False
        #: Checkpoints are written by the owner's thread and by others; each write is of what holds at that moment.
        self._checkpoint_lock = threading.Lock()
        self._recovery_points = read_offsets(files, path / RECOVERY_POINTS)
        self._log_starts = read_offsets(files, path / LOG_STARTS)

    @classmethod
    def open(cls, path: Path, files: Files, broker_id: int, cluster_id: str, boot_id: str | None) -> LogDirectory:
        """Takes the directory (created where it is missing) for this broker until `close`.

        `boot_id` names the run of the machine's kernel; None where it cannot be known. DataDirectoryError where
        another process holds the directory, or where it belongs to another broker or cluster; StorageError where it
        cannot be written.
        """
        files.make_directory(path)
        lock = files.try_lock(path / LOCK)
        if lock is None:
            raise DataDirectoryError(f"{path} is in use by another process")
        try:
            _take_identity(path, files, broker_id, cluster_id)
            clean = files.exists(path / CLEAN_SHUTDOWN)
            last_boot = (files.read(path / BOOT_ID) or b"").decode("ascii", "replace").strip()
            possibly_short = not clean and (not last_boot or last_boot != boot_id)
            # The marker goes, durably, before anything is written that it would vouch for.
            files.remove(path / CLEAN_SHUTDOWN)
            files.replace(path / BOOT_ID, f"{boot_id or ''}\n".encode("ascii"))
        except BaseException:
            lock.release()
            raise
        return cls(
            path,
            files,
            lock,
            broker_id=broker_id,
            cluster_id=cluster_id,
            clean=clean,
            possibly_short=possibly_short,
        )

    # --- logs ----------------------------------------------------------------------------------------

    def logs(self) -> Mapping[TopicPartition, Log]:
        """Those that are open."""
        return self._logs

    def open_logs(self, config_of: ConfigOf | None = None, progress: Progress | None = None) -> None:
        """Opens every log that the directory holds, recovers those that need it, and finishes interrupted deletions.

        Slow after a crash; run it on a thread. `config_of` gives a topic's settings (the defaults where it is None),
        `progress` is called with (done, all). Ends early, after the log at hand, where the directory is closed
        meanwhile.
        """
        for name in self._files.names(self.path):
            if name.endswith(_DELETED):
                self._files.remove_directory(self.path / name)
        found = self._found()
        for done, tp in enumerate(sorted(found), start=1):
            with self._opening:
                if self._closed:
                    return
                if tp not in self._logs:
                    self._logs[tp] = self._open(tp, config_of(tp.topic) if config_of else LogConfig())
            if progress is not None:
                progress(done, len(found))

    def _found(self) -> set[TopicPartition]:
        """The partitions that have a log here, open or not."""
        return {tp for name in self._files.names(self.path) if (tp := _partition_of(name)) is not None}

    def get_or_create(self, tp: TopicPartition, topic_id: str, config: LogConfig) -> Log:
        """The log of this partition of this topic, with these settings.

        One that belongs to an earlier topic of the same name is set aside first and never read. InvalidTopicError for a
        name that could lead out of the directory.
        """
        directory = self._directory_of(tp)
        log = self._logs.get(tp)
        if log is None and self._files.exists(directory):
            log = self._logs[tp] = self._open(tp, config)
        if log is not None and log.topic_id and topic_id and log.topic_id != topic_id:
            _LOG.warning("%s belongs to topic id %s, not %s: set aside", tp, log.topic_id, topic_id)
            self.set_aside(tp)
            log = None
        if log is None:
            log = self._logs[tp] = self._open(tp, config)
        if topic_id and log.topic_id != topic_id:
            log.assign_topic_id(topic_id)
        log.config = config
        return log

    def set_aside(self, tp: TopicPartition) -> Path:
        """Takes a log out of use but keeps its files; the directory that they are in now."""
        self._take_out_of_use(tp)
        return self._rename(tp, _STRAY)

    def delete(self, *tps: TopicPartition) -> None:
        """Removes logs for good. Renamed first, so that a crash never leaves half a log under the partition's name.

        All at once, since what the checkpoints hold of them is forgotten with one sync, and not with one for each.
        """
        self._take_out_of_use(*tps)
        for retired in [self._rename(tp, _DELETED) for tp in tps]:
            self._files.remove_directory(retired)

    def _rename(self, tp: TopicPartition, kind: str) -> Path:
        directory = self._directory_of(tp)
        suffix = f"-{tp.partition}.{uuid.uuid4().hex}{kind}"
        retired = self.path / (tp.topic[: _MAX_NAME - len(suffix)] + suffix)
        self._files.rename(directory, retired)
        return retired

    def _take_out_of_use(self, *tps: TopicPartition) -> None:
        """A later log of the same name must not inherit a recovery point or a log start, not even after a crash."""
        for tp in tps:
            if log := self._logs.pop(tp, None):
                log.abandon()
        with self._checkpoint_lock:
            for name, offsets in ((LOG_STARTS, self._log_starts), (RECOVERY_POINTS, self._recovery_points)):
                if known := offsets.keys() & set(tps):
                    for tp in known:
                        del offsets[tp]
                    write_offsets(self._files, self.path / name, offsets)

    def _open(self, tp: TopicPartition, config: LogConfig) -> Log:
        return Log.open(
            self._directory_of(tp),
            config,
            self._files,
            recovery_point=self._recovery_points.get(tp, 0),
            clean=self.clean and tp in self._recovery_points,
            log_start_offset=self._log_starts.get(tp, 0),
            before_truncation=lambda offset: self._lower_recovery_point(tp, offset),
        )

    def _directory_of(self, tp: TopicPartition) -> Path:
        name = str(TopicPartition(validate_topic(tp.topic), tp.partition))
        if tp.partition < 0 or len(name) > _MAX_NAME:
            raise InvalidTopicError(f"{name} cannot be the name of a log")
        return self.path / name

    # --- checkpoints ---------------------------------------------------------------------------------

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """As last checkpointed; empty where the checkpoint is missing or damaged."""
        return read_offsets(self._files, self.path / HIGH_WATERMARKS)

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces the checkpoint (all partitions at once), durably."""
        with self._checkpoint_lock:
            write_offsets(self._files, self.path / HIGH_WATERMARKS, offsets)

    def checkpoint_recovery_points(self) -> None:
        """Syncs the segments that were rolled since the last time and notes up to where each log is synced.

        Takes as long as the disk does; may run on a thread beside appends.
        """
        for log in list(self._logs.values()):
            log.flush(rolled_only=True)
        self._write_recovery_points()

    def _lower_recovery_point(self, tp: TopicPartition, offset: int) -> None:
        with self._checkpoint_lock:
            if self._recovery_points.get(tp, 0) > offset:
                self._recovery_points[tp] = offset
                write_offsets(self._files, self.path / RECOVERY_POINTS, self._recovery_points)

    def _write_recovery_points(self) -> None:
        with self._checkpoint_lock:
            logs = dict(self._logs)
            self._recovery_points |= {tp: log.recovery_point for tp, log in logs.items()}
            for tp, log in logs.items():
                if log.log_start_offset > log.segment_base_offsets[0]:
                    self._log_starts[tp] = log.log_start_offset
                else:
                    self._log_starts.pop(tp, None)
            write_offsets(self._files, self.path / LOG_STARTS, self._log_starts)
            write_offsets(self._files, self.path / RECOVERY_POINTS, self._recovery_points)

    # --- session and end -----------------------------------------------------------------------------

    def read_session(self) -> str | None:
        """What `write_session` last wrote: the ZooKeeper session of the process before this one."""
        data = self._files.read(self.path / SESSION_ID)
        return data.decode("utf-8", "replace").strip() or None if data is not None else None

    def write_session(self, session: str) -> None:
        self._files.replace(self.path / SESSION_ID, f"{session}\n".encode())

    def close(self, clean: bool = True) -> None:
        """Gives the directory back. `clean`: first every log is completed and synced, then the marker written.

        After a storage error the marker stays away, and the next start recovers; the first error is raised at the end.
        It stays away too where logs that a crash left behind have not been opened, for nobody has checked those.
        """
        with self._opening:
            self._closed = True
        with ThreadPoolExecutor(_CLOSING_THREADS) as threads:
            failures = list(threads.map(lambda log: _close(log, clean), list(self._logs.values())))
        failure = next(filter(None, failures), None)
        try:
            if clean and failure is None:
                self._write_recovery_points()
            if clean and failure is None and (self.clean or self._found() <= self._logs.keys()):
                self._files.replace(self.path / CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
        finally:
            self._lock.release()
        if failure is not None:
            raise failure


def _close(log: Log, clean: bool) -> StorageError | None:
    try:
        if clean:
            log.close()
        else:
            log.abandon()
    except StorageError as error:
        return error
    return None


def _partition_of(name: str) -> TopicPartition | None:
    """The partition whose log a directory of this name holds; None where it is none."""
    match = _LOG_NAME.match(name)
    if match is None or name.startswith("."):
        return None
    try:
        return TopicPartition(validate_topic(match["topic"]), int(match["partition"]))
    except InvalidTopicError:
        return None


def _take_identity(path: Path, files: Files, broker_id: int, cluster_id: str) -> None:
    data = files.read(path / META)
    if data is None:
        if any(_partition_of(name) for name in files.names(path)):
            raise DataDirectoryError(f"{path} holds logs but no {META}; it cannot be told whose they are")
        text = f"version=0\nbroker.id={broker_id}\ncluster.id={cluster_id}\n"
        files.replace(path / META, text.encode())
        return
    fields = dict(line.partition("=")[::2] for line in data.decode("utf-8", "replace").splitlines())
    for name, wanted in (("version", "0"), ("broker.id", str(broker_id)), ("cluster.id", cluster_id)):
        found = fields.get(name, "").strip()
        if found != wanted:
            raise DataDirectoryError(f"{path / META} says {name}={found or 'nothing'}, not {wanted}")
