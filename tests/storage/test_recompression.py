"""A topic with a codec of its own stores every batch with it; readers see no other difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.log.recompression import recompress
from tests.storage.logs import NOW, batch, open_log
from tidelog.errors import MessageTooLargeError
from tidelog.records import Codec, decode_records, encode_batch, read_header, validate_batch


@pytest.mark.parametrize("to", Codec)
@pytest.mark.parametrize("codec", Codec)
def test_recompression_changes_only_the_codec(codec: Codec, to: Codec) -> None:
    before = encode_batch(
        [(NOW, b"k", b"value" * 50, (("h", None),)), (NOW - 5, None, None, ())],
        producer_id=9, producer_epoch=1, base_sequence=4, base_offset=7, leader_epoch=3, codec=codec,
    )  # fmt: skip
    after = recompress(before, read_header(before), to, None, 10_000)
    header = read_header(after)
    validate_batch(after, 0, header)
    assert header.size_bytes == len(after) and header.codec == to
    assert decode_records(after) == decode_records(before)
    same = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert header._replace(**same) == read_header(before)._replace(**same)


def test_recompressed_batch_must_fit_the_topic_limit(tmp_path: Path) -> None:
    small = batch(NOW, value=bytes(10_000), codec=Codec.ZSTD)
    log = open_log(tmp_path, compression_type="uncompressed", max_message_bytes=10_070)
    assert len(small) < 200
    with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
        log.append_as_leader(small, 0, NOW)
    assert (log.log_end_offset, log.size_bytes) == (0, 0)
    log.append_as_leader(batch(NOW, value=bytes(9_900), codec=Codec.ZSTD), 0, NOW)
    stored = log.read(0, 20_000)
    assert read_header(stored).codec == Codec.NONE
    assert decode_records(stored)[0].value == bytes(9_900)
