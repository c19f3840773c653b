"""Test histories that brokers write elsewhere: linked during the run, and copied at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from verify.chaos.results import foreign_histories


def test_followed_history_grows_and_copied_history_does_not(tmp_path: Path) -> None:
    elsewhere, results = tmp_path / "elsewhere", tmp_path / "results"
    elsewhere.mkdir()
    (elsewhere / "1.jsonl").write_text("before\n")
    foreign_histories.follow(elsewhere, [1], results)
    with (elsewhere / "1.jsonl").open("a") as history:
        history.write("meanwhile\n")
    assert (results / "histories" / "1.jsonl").read_text() == "before\nmeanwhile\n"
    foreign_histories.take(results)
    with (elsewhere / "1.jsonl").open("a") as history:
        history.write("after\n")
    assert (results / "histories" / "1.jsonl").read_text() == "before\nmeanwhile\n"
    assert [path.name for path in (results / "histories").iterdir()] == ["1.jsonl"]


def test_own_histories_stay_unchanged(tmp_path: Path) -> None:
    foreign_histories.follow(tmp_path, [], tmp_path)
    (tmp_path / "histories" / "client.jsonl").write_text("mine\n")
    foreign_histories.take(tmp_path)
    assert (tmp_path / "histories" / "client.jsonl").read_text() == "mine\n"


def test_missing_history_is_reported(tmp_path: Path) -> None:
    foreign_histories.follow(tmp_path / "elsewhere", [1], tmp_path)
    with pytest.raises(FileNotFoundError):
        foreign_histories.take(tmp_path)
