"""A broker with several log directories, reduced to its logs, and the moves of one log between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from storage.files import Files
from storage.log.log import Log
from storage.log_manager import LogManager
from storage.moves.log_move import LogMove
from storage.moves.move_rules import TAIL_BYTES
from storage.steps import SteppedWork, call
from tests.storage.logs import NOW, UnsyncedFiles, append, batch, config, read_all
from tidelog.model import TopicPartition
from verify.simulation.disks.failing_files import FailingFiles, Fault

TP = TopicPartition("orders", 0)
HOSTED = {TP: "id"}
#: Larger than the tail that the last step copies itself.
LARGE = bytes(TAIL_BYTES + 1)


class Broker:
    """The log directories a, b … of a broker; the log of `TP` begins in a and is moved to b."""

    def __init__(self, root: Path, files: Files | None = None, names: str = "ab", **settings: object) -> None:
        self.files = files or UnsyncedFiles()
        self.paths = [root / name for name in names]
        self.config = config(**settings)
        self.high_watermark = 0
        self.waits = False
        self.replaced_contents = b""
        self.hosted = HOSTED
        self.start()

    def start(self, boot: str = "boot-1") -> None:
        self.manager = LogManager.open(self.paths, self.files, 1, "c1", boot)
        self.manager.open_logs(lambda topic: self.config, hosted=self.hosted)

    def create(self) -> Log:
        self.manager.futures.prefer(TP, self.paths[0])
        return self.manager.get_or_create(TP, "id", self.config)

    @property
    def log(self) -> Log:
        return self.manager.logs()[TP]

    def begin(self, to: int = 1) -> SteppedWork[None]:
        """Return a move, which has not begun."""
        future = self.manager.futures.get(TP) or self.manager.futures.add(TP, self.manager.directories[to])
        self.move = LogMove(
            self.manager,
            future,
            self.files,
            current=self._current,
            high_watermark=lambda: self.high_watermark,
            replaced=self._replaced,
        )
        return SteppedWork(self.move.steps())

    def _current(self) -> Log | None:
        self.current = self.manager.logs().get(TP)
        return None if self.waits else self.current

    def _replaced(self, log: Log) -> None:
        assert self.current is not None
        self.replaced_contents = read_all(self.current)

    def move_to(self, to: int = 1) -> None:
        finish(self.begin(to))

    def move_by_name(self, to: str, files: FailingFiles | None = None) -> None:
        """Move the log, append a record and restart. With `files` the old disk vanishes before its log is deleted."""
        source = next(path for path in self.paths if path.name == self.place())
        work = self.begin([each.path.name for each in self.manager.directories].index(to))
        advance(work, lambda: self.move.future.is_current)
        if files is not None:
            files.fail(Fault.VANISHED, source)
        finish(work)
        append(self.log)
        self.manager.close(clean=False)
        self.start()

    def place(self) -> str:
        directory = self.manager.directory_of(TP)
        assert directory is not None
        return directory.path.name


def advance(work: SteppedWork[None], until: Callable[[], bool] = lambda: False) -> None:
    """Run the move to its end, or up to the first step after which `until` holds."""
    if not work.begun:
        work.resume()
    while not work.finished and not until():
        work.resume(call(work.step))


def finish(work: SteppedWork[None]) -> None:
    advance(work)


def append_large(log: Log, leader_epoch: int = 0, value: bytes = LARGE) -> None:
    log.append_as_leader(batch(NOW, value=value), leader_epoch, NOW)


def begin_and_hold_flushes(broker: Broker) -> SteppedWork[None]:
    """Flush more and more records, until the move lets the next flush wait, which is the last part of its work."""
    work, log = broker.begin(), broker.log

    def holds() -> bool:
        if not broker.move.holds_flushes:
            append(log)
            log.flush()
        return broker.move.holds_flushes

    advance(work, holds)
    return work
