"""The epoch cache compared with a list of the epoch of every offset."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log.leader_epochs import EpochStart, LeaderEpochs
from tests.storage.logs import UnsyncedFiles
from tests.storage.soundness import epoch_of


def test_epoch_file_that_contradicts_itself_is_ignored(tmp_path: Path) -> None:
    for entries in ("1 5\n1 6", "2 5\n1 6", "1 5\n2 5", "1 6\n2 5", "1\n2 5", "1 5 9\n2 6", "x 5\n2 6"):
        (tmp_path / "leader-epoch-checkpoint").write_text(f"0\n2\n{entries}\n")
        assert LeaderEpochs.load(tmp_path, UnsyncedFiles()) is None, entries
    for beyond in (f"1 5\n{2**31} 6", f"1 5\n2 {2**63}", "-1 5\n2 6", "1 -5\n2 6"):
        (tmp_path / "leader-epoch-checkpoint").write_text(f"0\n2\n{beyond}\n")
        assert LeaderEpochs.load(tmp_path, UnsyncedFiles()) is None, beyond
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n1 5\n2 6\n")
    assert LeaderEpochs.load(tmp_path, UnsyncedFiles()) is not None


class EpochOfEveryOffset:
    """The model: `epochs[i]` is the epoch of offset `start + i`; `opened` began last, if it has no record."""

    def __init__(self) -> None:
        self.start = 0
        self.epochs: list[int] = []
        self.opened: int | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.epochs)

    def latest(self) -> int | None:
        return self.opened if self.opened is not None else (self.epochs[-1] if self.epochs else None)

    def end_offset_for(self, epoch: int) -> tuple[int, int] | None:
        latest = self.latest()
        if latest is None or epoch > latest:
            return None
        if epoch == latest:
            return epoch, self.end
        below = [e for e in self.epochs if e <= epoch]
        after = [self.start + i for i, e in enumerate(self.epochs) if e > epoch]
        return (below[-1] if below else epoch), (after[0] if after else self.end)


steps = st.one_of(
    st.tuples(st.just("begin"), st.integers(0, 3)),
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("truncate"), st.integers(0, 30)),
    st.tuples(st.just("trim"), st.integers(0, 30)),
    st.tuples(st.just("reload"), st.just(0)),
)


@settings(max_examples=200)
@given(st.lists(steps, max_size=25))
def test_answers_are_those_of_the_epochs_of_all_offsets(story: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, files, twin, epoch = Path(name), UnsyncedFiles(), EpochOfEveryOffset(), 0
        epochs = LeaderEpochs(directory, files, [])
        for step, value in story:
            if step == "begin":
                epoch += value
                epochs.assign(epoch, twin.end)
                twin.opened = epoch if not twin.epochs or twin.epochs[-1] != epoch else None
            elif step == "append":
                epochs.assign(epoch, twin.end)
                twin.epochs += [epoch] * value
                twin.opened = None
            elif step == "truncate" and twin.start <= value < twin.end:
                epochs.truncate_from_end(value)
                del twin.epochs[value - twin.start :]
                twin.opened = None
            elif step == "trim" and twin.start < value < twin.end:
                epochs.truncate_from_start(value)
                del twin.epochs[: value - twin.start]
                twin.start = value
            elif step == "reload" and epochs.entries():
                epochs.write()
                loaded = LeaderEpochs.load(directory, files)
                assert loaded is not None
                epochs = loaded
            assert epochs.latest == twin.latest()
            for asked in range(epoch + 2):
                assert epochs.end_offset_for(asked, twin.end) == twin.end_offset_for(asked)
            for index, expected in enumerate(twin.epochs):
                assert epoch_of(twin.start + index, epochs.entries()) == expected


def test_an_epoch_below_all_known_ones_ends_where_the_first_begins(tmp_path: Path) -> None:
    epochs = LeaderEpochs(tmp_path, UnsyncedFiles(), [EpochStart(5, 10), EpochStart(7, 20)])
    assert epochs.end_offset_for(3, 30) == (3, 10)
    assert epochs.end_offset_for(6, 30) == (5, 20)
    assert epochs.end_offset_for(8, 30) is None


def test_the_checkpoint_is_kafkas(tmp_path: Path) -> None:
    epochs = LeaderEpochs(tmp_path, UnsyncedFiles(), [])
    epochs.assign(0, 0)
    epochs.assign(3, 17)
    epochs.write()
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n3 17\n"


def written_entries(directory: Path) -> tuple[EpochStart, ...] | None:
    loaded = LeaderEpochs.load(directory, UnsyncedFiles())
    return None if loaded is None else loaded.entries()


def test_new_epoch_waits_for_the_next_write_and_a_removed_one_does_not(tmp_path: Path) -> None:
    epochs = LeaderEpochs(tmp_path, UnsyncedFiles(), [])
    epochs.assign(1, 0)
    assert written_entries(tmp_path) is None
    epochs.write()
    assert written_entries(tmp_path) == ((1, 0),)
    epochs.assign(2, 10)
    epochs.assign(3, 20)
    epochs.truncate_from_end(15)
    assert written_entries(tmp_path) == ((1, 0), (2, 10))


def test_flush_writes_unwritten_epochs_first(tmp_path: Path) -> None:
    epochs = LeaderEpochs(tmp_path, UnsyncedFiles(), [])
    epochs.assign(1, 0)
    epochs.flush()
    assert written_entries(tmp_path) == ((1, 0),)


def test_closed_directory_is_never_written(tmp_path: Path) -> None:
    epochs = LeaderEpochs(tmp_path, UnsyncedFiles(), [])
    epochs.assign(7, 0)
    epochs.close()
    epochs.write()
    assert written_entries(tmp_path) is None, "another topic may use the directory"


def test_an_epoch_that_begins_during_a_write_is_written_by_the_next(tmp_path: Path) -> None:
    class Busy(UnsyncedFiles):
        def replace(self, path: Path, data: bytes, *, fsync: bool = True) -> None:
            super().replace(path, data, fsync=fsync)
            epochs.assign(2, 10)

    begun: list[LeaderEpochs] = []
    epochs = LeaderEpochs(tmp_path, Busy(), [], begun.append)
    epochs.assign(1, 0)
    epochs.write()
    assert written_entries(tmp_path) == ((1, 0),)
    assert begun == [epochs, epochs]
    epochs.write()
    assert written_entries(tmp_path) == ((1, 0), (2, 10))
