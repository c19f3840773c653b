"""Test that histories survive a round trip through files, even if the writer was killed."""

from __future__ import annotations

import random
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.checker.little_log import random_case
from tests.checker.mutations import MUTATIONS
from tidelog.errors import HistoryError
from tidelog.history.broker_events import Broker, Registered, Session, Truncate
from tidelog.history.events import Event, Header
from tidelog.history.group_operations import CommitInvoked, CommittedFailed, Revoked
from tidelog.history.history_files import HistoryWriter, history_path, read_history
from tidelog.history.json_lines import of_fields, to_fields
from tidelog.history.operations import (
    Client,
    EarliestFailed,
    EarliestOk,
    LatestFailed,
    LookUpFailed,
    Overdue,
    ProduceInvoked,
    ProduceOk,
    TrimInvoked,
    TrimOk,
    TrimUnknown,
)
from tidelog.model import TopicPartition
from verify.checker.inputs.logs import FinalLog, read_final_log, read_final_logs, write_final_log

TP = TopicPartition("t", 0)
INVOKED = ProduceInvoked(TP, [1, 2], [5, 6], [100, 110])
ENDED = ProduceOk(TP, [1, 2], range(7, 9), [150, 150])
LINES = (
    '{"history":1,"kind":"client","name":"c","acks":1}\n'
    '{"e":"invoke","f":"produce","tp":["t",0],"ids":[1,2],"ts":[5,6],"t":[100,110]}\n'
    '{"e":"ok","f":"produce","tp":["t",0],"ids":[1,2],"offset":7,"t":[150,150]}\n'
)


def plain(event: Any) -> Any:
    """Return the event with lists in place of arrays, ranges and tuples."""
    if isinstance(event, Mapping):
        return dict(event)
    if isinstance(event, Sequence) and not isinstance(event, str):
        return [plain(each) for each in event]
    return event


def fields_of(event: Header | Event) -> dict[str, Any]:
    return {name: plain(getattr(event, name)) for name in type(event).__slots__}


def write(path: Path, *entries: Event, header: Header | None = None) -> None:
    with HistoryWriter(path, header or Client("c", acks=1)) as history:
        for event in entries:
            history.write(event)


def test_history_has_readable_lines(tmp_path: Path) -> None:
    path = history_path(tmp_path, "c")
    write(path, INVOKED, ENDED)
    assert path == tmp_path / "histories" / "c.jsonl"
    assert path.read_text() == LINES
    header, *entries = read_history(path)
    assert header == Client("c", acks=1)
    assert [fields_of(each) for each in entries] == [fields_of(INVOKED), fields_of(ENDED)]


def test_every_kind_of_event_survives_a_round_trip(tmp_path: Path) -> None:
    rng = random.Random(3)
    stories = [random_case(1), *(each.spoil(random_case(1), rng) for each in MUTATIONS if "read" not in each.name)]
    entries = {type(event): event for case in stories for _, event in case.entries}
    entries |= {
        type(each): each
        for each in (
            Overdue("read", TP, 1, 2),
            LatestFailed(TP, "TIMEOUT", 1, 2),
            EarliestOk(TP, 3, 1, 2),
            EarliestFailed(TP, "TIMEOUT", 1, 2),
            LookUpFailed(TP, 4, "TIMEOUT", 1, 2),
            TrimInvoked(TP, 4, 1),
            TrimOk(TP, 4, 1, 2),
            TrimUnknown(TP, 4, "TIMEOUT", 1, 2),
            CommitInvoked("g", TP, 4, 1, 2, "m"),
            CommittedFailed("g", TP, "TIMEOUT", 1, 2),
            Revoked("g", "m", 1, [TP], 2),
            Truncate(1, TP, 4, "epoch 3 ends at 4"),
            Session(1, "lost"),
            Registered(1, 77),
        )
    }
    assert set(entries) == set(get_args(Event))
    for event in entries.values():
        again = of_fields(to_fields(event))
        assert type(again) is type(event)
        assert fields_of(again) == fields_of(event)


def test_offsets_that_are_not_consecutive_are_written_as_a_list() -> None:
    line = to_fields(ProduceOk(TP, [1, 2], [7, 9], [1, 1], [3, 3]))
    assert line == {
        "e": "ok",
        "f": "produce",
        "tp": ["t", 0],
        "ids": [1, 2],
        "offsets": [7, 9],
        "t": [1, 1],
        "epochs": [3, 3],
    }
    assert of_fields({**line, "offsets": [7, 8]}).offsets == range(7, 9)  # type: ignore[union-attr]


@pytest.mark.parametrize("cut", range(1, 80, 13))
def test_incomplete_line_of_a_killed_writer_is_ignored(tmp_path: Path, cut: int) -> None:
    path = history_path(tmp_path, "c")
    write(path, INVOKED, ENDED)
    path.write_bytes(path.read_bytes()[:-cut])
    assert len(list(read_history(path))) == (2 if cut < 76 else 1)
    write(path, ENDED)
    headers = [each for each in read_history(path) if isinstance(each, Client)]
    assert len(headers) == 2
    assert fields_of(list(read_history(path))[-1]) == fields_of(ENDED)


def test_history_without_a_complete_header_starts_again(tmp_path: Path) -> None:
    path = history_path(tmp_path, "c")
    path.parent.mkdir()
    path.write_bytes(b'{"hist')
    assert list(read_history(path)) == []
    write(path, header=Broker("1"))
    assert list(read_history(path)) == [Broker("1")]


def test_unbuffered_lines_are_written_at_once_and_buffered_ones_when_full(tmp_path: Path) -> None:
    direct = HistoryWriter(tmp_path / "a.jsonl", Broker("1"))
    direct.write(Session(1, "lost"))
    assert len((tmp_path / "a.jsonl").read_bytes().splitlines()) == 2
    buffered = HistoryWriter(tmp_path / "b.jsonl", Broker("1"), buffer_bytes=100)
    buffered.write(Session(1, "lost"))
    assert (tmp_path / "b.jsonl").read_bytes() == b""
    buffered.write(Session(2, "lost"))
    assert len((tmp_path / "b.jsonl").read_bytes().splitlines()) == 3
    buffered.write(Session(3, "lost"))
    buffered.close()
    buffered.close()
    direct.close()
    assert len((tmp_path / "b.jsonl").read_bytes().splitlines()) == 4


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "2: "),
        ("[]", "2: the line is not a JSON object"),
        ('{"e":"ok","f":"produce"}', "2: tp is missing"),
        ('{"e":"ok","f":"prodcue"}', "2: unknown event ok prodcue"),
        ('{"e":"hw","t":1,"tp":["t",0],"epoch":"x","value":1}', "2: 'x' is not of type int"),
        ('{"e":"hw","t":1,"tp":"t","epoch":1,"value":1}', "2: "),
        ('{"e":"ok","f":"produce","tp":["t",0],"ids":[1],"offset":7,"t":[1,2]}', "2: its columns"),
        ('{"e":"ok","f":"produce","tp":["t",0],"ids":[1.5],"offset":7,"t":[1]}', "2: "),
        ('{"e":"ok","f":"produce","tp":["t",0],"ids":[9223372036854775808],"offset":7,"t":[1]}', "2: "),
        ('{"history":2,"kind":"client","name":"c"}', "2: version 2"),
        ('{"history":1,"kind":"dog","name":"c"}', "2: a history is a client's"),
        ('{"history":1,"kind":"broker","name":"one"}', "2: a broker's name is its id"),
        ("[" * 100_000, "2: "),
    ],
)
def test_invalid_history_line_is_refused_with_file_and_line(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(f'{{"history":1,"kind":"client","name":"c"}}\n{line}\n')
    with pytest.raises(HistoryError) as refused:
        list(read_history(path))
    assert f"{path}:{words}" in str(refused.value)


def test_history_begins_with_a_header(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"e":"session","t":1,"state":"lost"}\n')
    with pytest.raises(HistoryError, match="header"):
        list(read_history(path))
    path.write_text('{"history":1,"kind":"broker","name":"1"} {}\n')
    with pytest.raises(HistoryError, match="jsonl:1: unexpected content after"):
        list(read_history(path))
    path.write_text("")
    with pytest.raises(HistoryError, match="empty"):
        list(read_history(path))


def test_final_logs_survive_a_round_trip(tmp_path: Path) -> None:
    for tp, logs in random_case(5).ending.logs.items():
        for log in logs:
            path = write_final_log(tmp_path, log, records_per_line=7)
            assert path == tmp_path / "final" / log.broker / f"{tp}.jsonl"
            assert fields_of(read_final_log(path)) == fields_of(log)  # type: ignore[arg-type]


def test_equal_lines_of_replicas_are_parsed_once(tmp_path: Path) -> None:
    right = random_case(5).ending.logs[TP][0]
    other = [*right.ids[:8], 77, *right.ids[9:]]
    logs = [replace(right, broker="1"), replace(right, broker="2", ids=other), replace(right, broker="3")]
    for log in logs:
        write_final_log(tmp_path, log, records_per_line=7)
    write_final_log(tmp_path, replace(right, broker="1", tp=TopicPartition("t", 1)), records_per_line=7)
    read = list(read_final_logs(tmp_path))
    assert [(log.broker, log.tp.partition) for log in read] == [("1", 0), ("2", 0), ("3", 0), ("1", 1)]
    assert [fields_of(log) for log in read[:3]] == [fields_of(log) for log in logs]  # type: ignore[arg-type]


def test_final_log_with_gaps_finds_its_records(tmp_path: Path) -> None:
    log = FinalLog("1", TP, 3, 12, 12, None, [3, 7, 11], [1, 2, 3], [4, 5, 6], [1, 1, 2])
    again = read_final_log(write_final_log(tmp_path, log))
    assert again.offsets == array("q", [3, 7, 11])
    assert [again.id_at(offset) for offset in (2, 3, 4, 7, 11, 12)] == [None, 1, None, 2, 3, None]
    assert again.holds([3, 11], [1, 3], [4, 6])
    assert not again.holds([3, 11], [1, 3], [4, 7])
    assert not again.holds([3, 4], [1, 2])


def test_final_log_that_was_cut_is_refused(tmp_path: Path) -> None:
    path = write_final_log(tmp_path, random_case(5).ending.logs[TP][0], records_per_line=7)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) > 3
    for kept in (b"".join(lines[:1]), b"".join(lines[:2]), b"".join(lines[:-1]), whole[:-1]):
        path.write_bytes(kept)
        with pytest.raises(HistoryError, match="the file is truncated"):
            read_final_log(path)


def test_final_log_without_counts_is_read(tmp_path: Path) -> None:
    """Earlier versions wrote no counts."""
    path = tmp_path / "t-0.jsonl"
    path.write_text(
        '{"final":1,"broker":"1","tp":["t",0],"log_start":0,"leo":1,"hw":1}\n{"offset":0,"ids":[1],"ts":[2],"epochs":[0]}\n'
    )
    assert list(read_final_log(path).ids) == [1]


def test_invalid_final_log_is_refused_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "t-0.jsonl"
    path.write_text('{"history":1}\n')
    with pytest.raises(HistoryError, match="jsonl:1: the file does not begin"):
        read_final_log(path)
    path.write_text(
        '{"final":1,"broker":1,"tp":["t",0],"log_start":0,"leo":1}\n{"offset":0,"ids":[1],"ts":[],"epochs":[1]}\n'
    )
    with pytest.raises(HistoryError, match="jsonl:2: the columns"):
        read_final_log(path)
