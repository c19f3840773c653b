from __future__ import annotations

import pytest

from tidelog.cli.terminal.times import At, Beginning, End, Position, parse_position

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Beginning()),
        ("end", End()),
        ("0", 0),
        ("42", 42),
        ("999999999999", 999_999_999_999),
        ("1000000000000", At(1_000_000_000_000)),
        ("@5", At(5)),
        ("-1h", At(NOW_MS - 3_600_000)),
        ("-1.5m", At(NOW_MS - 90_000)),
        ("2027-01-15T08:00:00Z", At(NOW_MS)),
    ],
)
def test_a_position_is_a_word_an_offset_or_a_time(text: str, position: Position) -> None:
    assert parse_position(text, NOW_MS) == position


def test_a_negative_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="-5 is negative"):
        parse_position("-5", NOW_MS)
