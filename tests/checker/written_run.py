"""Write a history as the directory of a run."""

from __future__ import annotations

from pathlib import Path

from tests.checker.little_log import Case
from tidelog.history.history_files import HistoryWriter, history_path
from verify.checker.inputs.logs import write_final_log
from verify.checker.inputs.run_directory import write_compacted, write_windows


def write_run(directory: Path, case: Case) -> None:
    writers = {name: HistoryWriter(history_path(directory, name), header) for name, header in case.headers.items()}
    for name, event in case.entries:
        writers[name].write(event)
    for writer in writers.values():
        writer.close()
    for logs in case.ending.logs.values():
        for log in logs:
            write_final_log(directory, log)
    write_windows(directory, case.ending.windows)
    write_compacted(directory, sorted(case.ending.compacted))
