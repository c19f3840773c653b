"""Test that the final log of a simulated replica equals that of its files, even if they are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.replication.partition import Partition
from node.replication.replica import Replica
from storage.files import Files
from storage.log.log import Log
from tests.storage.logs import NOW, UnsyncedFiles, config
from tidelog.history.columns import DAMAGED
from tidelog.model import TopicPartition
from tidelog.records import HEADER_BYTES, encode_batch, iter_headers
from verify.chaos.payload import make_id, payload
from verify.checker.inputs.export_logs import read_replica
from verify.simulation.cluster.final_logs import replica_log
from verify.simulation.disks.crashable_files import CrashableFiles

TP = TopicPartition("orders", 0)
IDS = [make_id(1, sequence) for sequence in range(8)]


def replica_in(directory: Path, files: Files) -> Replica:
    """Append four batches of two records, in two epochs."""
    files.make_directory(directory)
    log = Log.open(directory, config(), files, recovery_point=0, clean=True)
    for number, epoch in enumerate((0, 0, 2, 2)):
        records = [(NOW + number, None, payload(each, 50), ()) for each in IDS[2 * number : 2 * number + 2]]
        log.append_as_leader(encode_batch(records), epoch, NOW)
    return Replica("id", log, Partition(1, TP, max_lag_ms=1_000, high_watermark=8))


@pytest.mark.parametrize("log_start", [0, 3], ids=["whole", "begins within a batch"])
def test_final_log_of_a_replica_equals_that_of_its_files(tmp_path: Path, log_start: int) -> None:
    replica = replica_in(tmp_path / "orders-0", UnsyncedFiles())
    replica.log.raise_log_start(log_start)
    replica.log.flush()
    final_log = replica_log(replica, 1)
    assert final_log == read_replica(tmp_path / "orders-0", "1", TP, log_start=log_start, hw=8)
    assert list(final_log.ids) == IDS[log_start:]


@pytest.mark.parametrize(
    ("place", "ids"),
    [
        pytest.param(HEADER_BYTES + 7, [*IDS[:2], DAMAGED, DAMAGED, *IDS[4:]], id="a record"),
        pytest.param(0, IDS[:2], id="the offset"),
        pytest.param(16, IDS[:2], id="the magic byte"),
    ],
)
def test_damaged_log_is_recorded_without_ending_the_simulation(place: int, ids: list[int]) -> None:
    files = CrashableFiles()
    replica = replica_in(Path("/data/orders-0"), files)
    (path,) = (path for path in files.paths() if path.suffix == ".log")
    second = [position for position, _ in iter_headers(files.read(path) or b"")][1]
    files.flip(path, second + place)
    final_log = replica_log(replica, 1)
    assert list(final_log.ids) == ids
    assert (final_log.log_start, final_log.leo) == (0, 8)
