"""Spark jobs as processes: their progress, and their end with all their processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tools.demo import spark_runs
from tools.demo.spark_runs import AuditJob, JobError, SparkJob, StreamJob, StreamProgress

#: Like Spark's workers, this job's child has a process group of its own. The job ignores SIGTERM.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], preexec_fn=lambda: os.setpgid(0, 0))
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for jobs that the test writes."""
    directory = tmp_path / "jobs"
    directory.mkdir()
    monkeypatch.setattr(spark_runs, "_JOBS", directory)
    return directory


def wait_for(log: Path) -> str:
    deadline = time.monotonic() + 20
    while not (said := log.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return said


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_stop_ends_all_processes_of_a_job_that_ignores_signals(
    jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_runs, "_POLITE_S", 0.1)
    (jobs / "stubborn.py").write_text(STUBBORN)
    job = SparkJob("stubborn", [], tmp_path / "log")
    child = int(wait_for(tmp_path / "log"))
    assert is_alive(child)
    job.stop()
    assert job.exit_status is not None
    assert not is_alive(child)


def test_ctrl_c_of_the_terminal_does_not_reach_a_job(jobs: Path, tmp_path: Path) -> None:
    (jobs / "waits.py").write_text("import os, time; print(os.getsid(0) == os.getpid(), flush=True); time.sleep(600)")
    job = SparkJob("waits", [], tmp_path / "log")
    try:
        assert wait_for(tmp_path / "log") == "True"
    finally:
        job.stop()


def test_progress_counts_the_batches_with_rows() -> None:
    progress = StreamProgress()
    progress.add({"event": "started", "at": 1})
    assert not progress.triggered
    progress.add({"event": "batch", "at": 10, "rows": 0, "failed_tasks": 0})
    assert progress.triggered
    progress.add({"event": "batch", "at": 20, "rows": 5, "failed_tasks": 1})
    progress.add({"event": "batch", "at": 30, "rows": 7, "failed_tasks": 1})
    progress.add({"event": "ended", "at": 40, "late": 3, "failed_tasks": 1})
    assert progress.rows == 12
    assert [progress.between(0, 20), progress.between(20, 30), progress.between(30, 99)] == [0, 1, 1]
    assert progress.failed_tasks == 1
    assert progress.ended is not None


def test_failed_stream_is_reported_with_the_last_line_of_its_log(jobs: Path, tmp_path: Path) -> None:
    (jobs / "windowed_counts.py").write_text("raise ValueError('no such topic')")
    job = StreamJob(tmp_path / "stream", "localhost:1", "lines", 0, "10 minutes")
    assert job.wait(20) == 1
    with pytest.raises(JobError, match="no such topic"):
        job.poll()


def test_incomplete_line_of_progress_is_read_when_it_is_complete(jobs: Path, tmp_path: Path) -> None:
    (jobs / "windowed_counts.py").write_text("import time; time.sleep(600)")
    job = StreamJob(tmp_path / "stream", "localhost:1", "lines", 0, "10 minutes")
    try:
        with (tmp_path / "stream" / "progress.jsonl").open("w") as file:
            file.write('{"event": "batch", "at": 1, "rows": 5}\n{"event": "ba')
            file.flush()
            assert job.poll().rows == 5
            file.write('tch", "at": 2, "rows": 6}\n')
            file.flush()
            assert job.poll().rows == 11
    finally:
        job.stop()


def test_audit_without_a_result_is_an_error(jobs: Path, tmp_path: Path) -> None:
    (jobs / "audit.py").write_text("import sys; print('Error: no brokers'); sys.exit(2)")
    job = AuditJob(tmp_path / "audit", "localhost:1", "lines", tmp_path / "journal.jsonl")
    assert job.wait(20) == 2
    with pytest.raises(JobError, match="no brokers"):
        job.figures()


def test_audit_shows_which_stage_spark_runs(jobs: Path, tmp_path: Path) -> None:
    (jobs / "audit.py").write_text("import time; time.sleep(600)")
    job = AuditJob(tmp_path / "audit", "localhost:1", "lines", tmp_path / "journal.jsonl")
    try:
        assert job.state() == "Spark is starting"
        progress = tmp_path / "audit" / "progress.jsonl"
        progress.write_text('{"started": true}\n')
        assert job.state() == "Spark is planning the join"
        progress.write_text(
            '{"started": true}\n' + '{"stage": 1, "tasks": 6, "done": 5}\n{"stage": 2, "tasks": 8, "done": 3}\n'
        )
        assert job.state() == "Spark has finished 3 of 8 tasks of its stage 2"
        assert job.state() == "Spark has finished 3 of 8 tasks of its stage 2"
    finally:
        job.stop()
