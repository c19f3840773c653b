"""Test which operations were open when clients were killed, from their histories."""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.history.events import Event
from tidelog.history.group_operations import CommitInvoked, CommitOk, CommitUnknown
from tidelog.history.history_files import HistoryWriter
from tidelog.history.operations import Client, ProduceFailed, ProduceInvoked, ProduceOk, ProduceUnknown
from tidelog.model import TopicPartition
from verify.chaos.faults.killed_clients import began_again, open_histories, unfinished

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def history(directory: Path, *events: Event) -> Path:
    path = directory / "clients-0.jsonl"
    with HistoryWriter(path, Client("clients-0")) as writer:
        for event in events:
            writer.write(event)
    return path


def test_records_without_an_outcome_are_unfinished(tmp_path: Path) -> None:
    path = history(
        tmp_path,
        ProduceInvoked(TP, [1, 2, 3, 4, 5], [9] * 5, [1] * 5),
        ProduceOk(TP, [1, 2], [0, 1], [2, 2]),
        ProduceFailed(TP, [3], ["INVALID_TIMESTAMP"], [3]),
        ProduceUnknown(TP, [4], ["REQUEST_TIMED_OUT"], [3]),
    )
    found = unfinished(path)
    assert (found.records, found.commits, found.size) == (1, 0, path.stat().st_size)


def test_commits_without_an_end_are_unfinished(tmp_path: Path) -> None:
    path = history(
        tmp_path,
        CommitInvoked("g", TP, 1, 1),
        CommitInvoked("g", OTHER, 1, 1),
        CommitOk("g", TP, 1, 1, 2),
        CommitUnknown("g", OTHER, 1, "REQUEST_TIMED_OUT", 1, 2),
        CommitInvoked("g", TP, 2, 3),
    )
    assert unfinished(path).commits == 1


def test_truncated_history_line_is_ignored(tmp_path: Path) -> None:
    path = history(tmp_path, ProduceInvoked(TP, [1], [9], [1]))
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"e":"ok","f":"produce","tp":["t",0],"ids":[1]')
    assert (unfinished(path).records, unfinished(path).size) == (1, whole)


def test_client_has_restarted_once_a_new_process_writes(tmp_path: Path) -> None:
    killed = unfinished(history(tmp_path, ProduceInvoked(TP, [1], [9], [1])))
    assert not began_again(killed)
    history(tmp_path)
    assert began_again(killed)


def test_open_histories_of_a_process_are_found(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "a.jsonl", Client("a")), (tmp_path / "b.log").open("w"):
        assert tmp_path / "a.jsonl" in open_histories(os.getpid())
        assert tmp_path / "b.log" not in open_histories(os.getpid())
    assert tmp_path / "a.jsonl" not in open_histories(os.getpid())
