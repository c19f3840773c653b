"""Write a history as the directory of a run."""

from __future__ import annotations

from pathlib import Path

from tests.checker.little_log import Story
from tidelog.history.history_files import HistoryWriter, history_path
from verify.checker.logs import write_final_log
from verify.checker.run_directory import write_compacted, write_windows


def write_run(directory: Path, story: Story) -> None:
    writers = {name: HistoryWriter(history_path(directory, name), header) for name, header in story.headers.items()}
    for name, event in story.told:
        writers[name].write(event)
    for writer in writers.values():
        writer.close()
    for logs in story.ending.logs.values():
        for log in logs:
            write_final_log(directory, log)
    write_windows(directory, story.ending.windows)
    write_compacted(directory, sorted(story.ending.compacted))
