"""Test numbers by record against a dict."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from tidelog.history.columns import SEQUENCE_BITS, Column
from verify.checker.by_record import ABSENT, ByRecord

_FIRST = st.sampled_from((-1, 0, 250, 511, (7 << SEQUENCE_BITS) + 255, (1 << 63) - 300)) | st.integers(0, 700)


@st.composite
def columns_of_ids(draw: st.DrawFn) -> Column:
    first, count = draw(_FIRST), draw(st.integers(0, 300))
    run = range(first, min(first + count, 1 << 63))
    if draw(st.booleans()):
        return run
    some = draw(st.lists(st.sampled_from(run), unique=True, max_size=20)) if run else []
    return draw(st.sampled_from((some, array("q", some))))


@given(steps=st.lists(st.tuples(st.sampled_from(("put", "take", "ask")), columns_of_ids()), max_size=12))
def test_numbers_by_record_equal_those_of_a_dict(steps: list[tuple[str, Column]]) -> None:
    known, twin = ByRecord(), dict[int, int]()
    for number, (verb, ids) in enumerate(steps):
        numbers = range(1000 * number, 1000 * number + len(ids))
        expected = [twin.get(each, ABSENT) for each in ids]
        if verb == "put":
            known.put(ids, numbers)
            twin.update(zip(ids, numbers, strict=True))
        elif verb == "take":
            assert known.take(ids).tolist() == expected
            for each in ids:
                twin.pop(each, None)
        else:
            assert known.numbers(ids).tolist() == expected
            assert known.has_all(ids) == (ABSENT not in expected)
            assert known.has_any(ids) == any(each != ABSENT for each in expected)
            assert [known.get(each) for each in ids] == [twin.get(each) for each in ids]
            assert [each in known for each in ids] == [each in twin for each in ids]
    assert dict(known.items()) == twin
