"""The corpus for Kafka's tool has every kind of file, and our own inspection finds no damage in it."""

from __future__ import annotations

from pathlib import Path

from storage.inspection import Damage, Fact, files_below, inspect
from tests.storage.corpus import write_corpus


def test_the_corpus_is_sound_and_lacks_nothing(tmp_path: Path) -> None:
    logs = write_corpus(tmp_path)
    findings = [(file, finding) for file in files_below(tmp_path) for finding in inspect(file, records=True)]
    assert [(file, finding) for file, finding in findings if isinstance(finding, Damage)] == []
    facts = [finding for _, finding in findings if isinstance(finding, Fact)]
    batches = [fact.fields for fact in facts if fact.what == "batch"]
    assert {fields["codec"] for fields in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {fields["timestamp_type"] for fields in batches} == {"CreateTime", "LogAppendTime"}
    assert {fact.fields["ends"] for fact in facts if fact.what == "marker"} == {"COMMIT", "ABORT"}
    assert any(fields["delete_horizon_timestamp"] for fields in batches)
    assert any(fields["record_count"] == 0 for fields in batches)
    assert sum(fact.what == "producer" for fact in facts) > 2
    assert max(int(str(fact.fields["epoch"])) for fact in facts if fact.what == "epoch") == 9
    for log in logs:
        indexes = [*log.glob("*.index"), *log.glob("*.timeindex")]
        assert len(indexes) > 2 and any(index.stat().st_size for index in indexes), log
