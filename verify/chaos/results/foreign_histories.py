"""Include the histories of brokers that are not the run's own and write their histories elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from tidelog.history.history_files import DIRECTORY, SUFFIX


def follow(histories: Path, brokers: Iterable[int], results: Path) -> None:
    """Link these brokers' histories into DIR/histories of the results, so that they are read while the brokers write
    them.
    """
    directory = results / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    for broker in brokers:
        name = f"{broker}{SUFFIX}"
        (directory / name).symlink_to(histories.absolute() / name)


def take(results: Path) -> None:
    """Replace each link in DIR/histories by a copy of the history as it is now. Raise OSError if a copy fails."""
    for link in (results / DIRECTORY).glob(f"*{SUFFIX}"):
        if link.is_symlink():
            copy = link.with_suffix(".copy")
            shutil.copyfile(link, copy)
            copy.replace(link)
