"""Histories that brokers of a cluster which is not the run's own keep elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from tidelog.history.history_files import DIRECTORY, SUFFIX


def follow(histories: Path, brokers: Iterable[int], results: Path) -> None:
    """They are read where they are, as if they were among the results."""
    directory = results / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    for broker in brokers:
        name = f"{broker}{SUFFIX}"
        (directory / name).symlink_to(histories.absolute() / name)


def take(results: Path) -> None:
    """What there is of them by now is the results' own. OSError where one cannot be copied."""
    for link in (results / DIRECTORY).glob(f"*{SUFFIX}"):
        if link.is_symlink():
            copy = link.with_suffix(".copy")
            shutil.copyfile(link, copy)
            copy.replace(link)
