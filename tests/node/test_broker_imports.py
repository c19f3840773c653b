"""A broker imports what takes much memory only when it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
LIBRARIES = ("cramjam", "lz4.frame", ZSTD)


@pytest.mark.parametrize(
    ("use", "imported"),
    [
        ("0", []),
        ("decompress(Codec.GZIP, compress(Codec.GZIP, b'a'))", []),
        ("compress(Codec.SNAPPY, b'a')", ["cramjam"]),
        ("compress(Codec.LZ4, b'a')", ["lz4.frame"]),
        ("compress(Codec.ZSTD, b'a')", [ZSTD]),
    ],
)
def test_broker_imports_no_library_of_a_codec_until_a_batch_needs_it(use: str, imported: list[str]) -> None:
    program = (
        "import sys, node.process.main\n"
        "from tidelog.records import Codec, compress, decompress\n"
        f"{use}\n"
        f"print([name for name in {LIBRARIES} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert shown.stdout.strip() == str(imported)
