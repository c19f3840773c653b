"""The examples in docs/FORMAT.md: the code decodes each of them and encodes the same bytes again."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest

from storage import partition_metadata
from storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from storage.configs.log_config import LogConfig
from storage.directory import leadership_checkpoint, lost_logs, meta_properties
from storage.directory.leadership_checkpoint import Leadership
from storage.directory.log_directory import LogDirectory
from storage.file_names import CLEAN_SHUTDOWN, CLEANED_SUFFIX, SWAP_SUFFIX
from storage.inspection.file_types import inspect
from storage.inspection.findings import Fact
from storage.log.leader_epochs import EpochStart, LeaderEpochs
from storage.log.log import Log
from storage.log_names import DELETED, STRAY, log_name, partition_named, retired_name
from storage.producers.producer_snapshots import decode_snapshot, encode_snapshot
from storage.producers.producer_state import ProducerState
from storage.segments.segment import Segment
from tests.storage.logs import UnsyncedFiles
from tidelog.model import TopicPartition
from tidelog.records import (
    Codec,
    MarkerKind,
    Record,
    TransactionMarker,
    decode_control_batch,
    decode_records,
    empty_batch,
    encode_batch,
    encode_control_batch,
    excerpt_batch,
    outline_batch,
    read_header,
    stamp_log_append_time,
    validate_batch,
)
from tidelog.records.header import HEADER, TRANSACTIONAL_BIT

SECTIONS = (
    (Path(__file__).parents[2] / "docs" / "FORMAT.md").read_text().split("\n## More bytes")[1].split("\n### ")[1:]
)
FILES = UnsyncedFiles()
VALUE = b"a value that repeats"
HEADER_SIZES = [8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4]


def blocks(title: str) -> list[str]:
    [section] = [section for section in SECTIONS if section.startswith(title + "\n")]
    return re.findall(r"```\n(.*?)```", section, flags=re.DOTALL)


def documented(title: str) -> bytes:
    """Return the only batch of the section. Each header field has a line of its own."""
    [block] = blocks(title)
    lines = [re.match(r"((?:[0-9a-f]{2} )*[0-9a-f]{2})(?: {2}|$)", line) for line in block.splitlines()]
    fields = [bytes.fromhex(line[1]) for line in lines if line]
    assert len(fields) == len(lines)
    assert [len(field) for field in fields[: len(HEADER_SIZES)]] == HEADER_SIZES
    batch = b"".join(fields)
    validate_batch(batch, 0, read_header(batch))
    assert len(batch) == read_header(batch).size_bytes
    return batch


def test_the_fields_have_the_values_that_are_written_beside_them() -> None:
    titles = [section.split("\n", 1)[0] for section in SECTIONS if "CRC-32C\n" in section]
    assert len(titles) == len(Codec) + 4
    for title in titles:
        reported = re.findall(r"^(?:[0-9a-f]{2} )*[0-9a-f]{2} +(.*)$", blocks(title)[0], re.MULTILINE)[
            : len(HEADER_SIZES)
        ]
        for text, value in zip(reported, HEADER.unpack_from(documented(title)), strict=True):
            if not text.startswith(("CRC-32C", "codec", "bit", "no codec")):
                assert str(value).replace("-", "−") in re.findall(r"−?\d+", text), (title, text)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_of_each_codec(codec: Codec) -> None:
    batch = documented(f"Codec {codec.name.lower()}")
    assert read_header(batch).codec == codec
    assert decode_records(batch) == [
        Record(10, 1000, b"k", VALUE + b", " + VALUE, ()),
        Record(11, 1003, None, VALUE, (("h", b"x"),)),
    ]
    records = [(r.timestamp, r.key, r.value, r.headers) for r in decode_records(batch)]
    again = encode_batch(records, codec=codec, base_offset=10, leader_epoch=5)
    # Another version of a compressor may choose other bytes, which are as good if the records are equal.
    assert again == batch or (codec is not Codec.NONE and decode_records(again) == decode_records(batch))


def test_a_control_batch() -> None:
    batch = documented("Control batch")
    assert decode_control_batch(batch) == TransactionMarker(MarkerKind.COMMIT, 12, 1010, 9, 1, 2)
    assert batch == encode_control_batch(
        MarkerKind.COMMIT, producer_id=9, producer_epoch=1, coordinator_epoch=2, timestamp_ms=1010,
        base_offset=12, leader_epoch=5,
    )  # fmt: skip


def test_a_batch_with_a_delete_horizon() -> None:
    batch = documented("Delete horizon")
    assert read_header(batch).delete_horizon_ms == 5000
    assert decode_records(batch) == [Record(22, 1005, b"k", None, ())]
    whole = [(1000, b"a", b"1", ()), (1003, b"b", b"2", ()), (1005, b"k", None, ())]
    before = encode_batch(whole, base_offset=20, leader_epoch=5)
    assert excerpt_batch(outline_batch(before, read_header(before)), [2], 5000) == batch


def test_a_batch_with_the_brokers_time() -> None:
    batch = documented("LogAppendTime")
    stamped = bytearray(documented("Codec none"))
    stamp_log_append_time(stamped, 0, 2000)
    assert stamped == batch
    assert [record.timestamp for record in decode_records(batch)] == [2000, 2000]


def test_an_emptied_batch() -> None:
    batch = documented("Emptied batch")
    assert decode_records(batch) == []
    whole = [(1000, b"a", b"1", ()), (1003, b"b", b"2", ())]
    before = encode_batch(whole, producer_id=9, producer_epoch=1, base_sequence=4, base_offset=30, leader_epoch=5)
    assert empty_batch(read_header(before)) == batch


@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS])
def test_a_checkpoint_of_offsets(tmp_path: Path, name: str) -> None:
    [section] = [section for section in SECTIONS if section.startswith("Small files")]
    assert f"`{name}`" in section
    path = tmp_path / name
    offsets = {TopicPartition("orders", 0): 4711, TopicPartition("orders", 1): 12}
    write_offsets(FILES, path, offsets)
    assert path.read_text() == blocks("Small files")[0]
    assert read_offsets(FILES, path) == offsets


def test_leader_epoch_checkpoint_example(tmp_path: Path) -> None:
    epochs = LeaderEpochs(tmp_path, FILES, [])
    epochs.assign(0, 0)
    epochs.assign(3, 4711)
    epochs.write()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == blocks("Small files")[1]
    read = LeaderEpochs.load(tmp_path, FILES)
    assert read is not None and read.entries() == (EpochStart(0, 0), EpochStart(3, 4711))


def test_partition_metadata_example(tmp_path: Path) -> None:
    partition_metadata.write(FILES, tmp_path, "AAAAAAAAAAAAAAAAAAAAAQ")
    assert (tmp_path / "partition.metadata").read_text() == blocks("Small files")[2]
    assert partition_metadata.read(FILES, tmp_path) == ("AAAAAAAAAAAAAAAAAAAAAQ", True)


def test_meta_properties_and_clean_marker_examples(tmp_path: Path) -> None:
    cluster_id = "Ysd1K2tSSbC0ubF4Jg5dRg"
    LogDirectory.open(tmp_path, FILES, 1, cluster_id, "a boot").close()
    assert (tmp_path / meta_properties.FILE_NAME).read_text() == blocks("Small files")[3]
    assert (tmp_path / CLEAN_SHUTDOWN).read_text() + "\n" == blocks("Small files")[4]
    again = LogDirectory.open(tmp_path, FILES, 1, cluster_id, "a boot")
    assert again.previous_shutdown.clean
    again.close()


def test_lost_logs_example(tmp_path: Path) -> None:
    lost = {TopicPartition("orders", 0): "AAAAAAAAAAAAAAAAAAAAAQ"}
    lost_logs.write(FILES, tmp_path, lost)
    assert (tmp_path / "lost-logs").read_text() == blocks("Small files")[5]
    assert lost_logs.read(FILES, tmp_path) == lost
    lost_logs.write(FILES, tmp_path, {})
    assert not (tmp_path / "lost-logs").exists()


def test_leadership_checkpoint_example(tmp_path: Path) -> None:
    topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    known = {
        TopicPartition("orders", 0): Leadership(topic_id, 17, 3, 40, 2),
        TopicPartition("orders", 1): Leadership(topic_id, 4, -1, 7, 2),
    }
    leadership_checkpoint.write(FILES, tmp_path, known)
    assert (tmp_path / "leadership-checkpoint").read_text() == blocks("Small files")[8]
    assert leadership_checkpoint.read(FILES, tmp_path) == known
    reported = [found.fields for found in inspect(tmp_path / "leadership-checkpoint") if isinstance(found, Fact)]
    assert [(each["topic_id"], each["leader_epoch"], each["leader"]) for each in reported] == [
        (topic_id, 17, 3),
        (topic_id, 4, -1),
    ]


def test_boot_id_and_session_id_examples(tmp_path: Path) -> None:
    boot_id, session = blocks("Small files")[6:8]
    opened = LogDirectory.open(tmp_path, FILES, 1, "c", boot_id.strip())
    opened.write_session(session.strip())
    opened.close(clean=False)
    assert (tmp_path / "boot.id").read_text() == boot_id
    assert (tmp_path / "session.id").read_text() == session
    assert (tmp_path / ".lock").read_bytes() == b""
    again = LogDirectory.open(tmp_path, FILES, 1, "c", boot_id.strip())
    assert not again.previous_shutdown.clean and not again.data_loss_marker.possibly_short
    assert again.read_session() == session.strip()
    again.close()
    unnamed = LogDirectory.open(tmp_path / "other", FILES, 1, "c", None)
    assert not unnamed.data_loss_marker.possibly_short, "there is nothing that it could lack"
    unnamed.close(clean=False)
    assert LogDirectory.open(tmp_path / "other", FILES, 1, "c", None).data_loss_marker.possibly_short
    assert (tmp_path / "other" / "boot.id").read_text() == "\n"


def test_names_of_cleaned_deleted_and_stray_segments(tmp_path: Path) -> None:
    cleaned, swapped, deleted, stray, _ = (block.splitlines() for block in blocks("Names"))

    def names() -> list[str]:
        return sorted(path.name for path in tmp_path.iterdir())

    segment = Segment(tmp_path, 4711, FILES, suffix=CLEANED_SUFFIX)
    batch = encode_batch([(1000, None, b"v", ())], base_offset=4711)
    segment.append((batch,), ((4711, 1000, len(batch)),))
    segment.seal()
    segment.offset_index.append(4711, 1)
    segment.flush()
    assert names() == cleaned
    segment.rename(SWAP_SUFFIX)
    assert names() == swapped
    segment.rename("")
    segment.retire()
    assert names() == deleted
    # The next start removes these leftovers of a crash.
    for name in cleaned:
        (tmp_path / name).touch()
    Log.open(tmp_path, LogConfig(), FILES, recovery_point=0, clean=True).close()
    assert not [name for name in names() if name.endswith((".cleaned", ".swap", ".deleted"))]
    set_aside = Segment(tmp_path, 4711, FILES)
    set_aside.append((batch,), ((4711, 1000, len(batch)),))
    set_aside.set_aside()
    assert [name for name in names() if "4711.log" in name or "4711.index" in name] == stray


def test_names_of_deleted_and_stray_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, deleted, stray = blocks("Names")[4].splitlines()
    orders = TopicPartition("orders", 0)
    drawn = uuid.UUID(re.findall(r"\.([0-9a-f]{32})-", deleted)[0])
    monkeypatch.setattr(uuid, "uuid4", lambda: drawn)
    assert (log_name(orders), retired_name(orders, DELETED), retired_name(orders, STRAY)) == (log, deleted, stray)
    assert [partition_named(name) for name in (log, deleted, stray)] == [orders, None, None]
    longest = retired_name(TopicPartition("t" * 249, 12345), DELETED)
    assert len(longest) == 255 and longest.endswith(f"t-12345.{drawn.hex}-delete")
    directory = LogDirectory.open(tmp_path, FILES, 1, "c", None)
    for name in (deleted, stray):
        (tmp_path / name).mkdir()
    directory.finish_deletions()
    assert not (tmp_path / deleted).exists()
    assert directory.strays() == [stray] and directory.found() == []
    directory.close()


def described(title: str) -> bytes:
    """Return the bytes of the section's block, one field for each line."""
    lines = (re.match(r"((?:[0-9a-f]{2} )*[0-9a-f]{2}) {2}", line) for line in blocks(title)[0].splitlines())
    return b"".join(bytes.fromhex(line[1]) for line in lines if line)


def test_an_aborted_transaction(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(described("Aborted transaction"))
    [found] = inspect(path)
    assert isinstance(found, Fact)
    assert found.fields == {"producer_id": 9, "first_offset": 6, "last_offset": 8, "last_stable_offset": 9}


def test_a_snapshot_with_an_open_transaction() -> None:
    whole = encode_batch(
        [(1006, None, b"a", ()), (1006, None, b"b", ())],
        producer_id=9, producer_epoch=1, base_sequence=0, base_offset=6,
    )  # fmt: skip
    state = ProducerState()
    state.update(read_header(whole)._replace(attributes=TRANSACTIONAL_BIT))
    assert encode_snapshot(state) == described("Open transaction")
    read = decode_snapshot(described("Open transaction"))
    assert read is not None
    assert read.producers[9].transaction_start == 6 and list(read.producers[9].batches) == [(1, 7, 1, 1006)]
