"""Finds the data directories of this user's clusters, and remembers which cluster was started last."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from tidelog.errors import LocalError

_LAST_UP = "last-up.json"


def data_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return TIDELOG_HOME, else XDG_DATA_HOME/tidelog, else ~/.local/share/tidelog, which may not exist yet.

    A relative XDG_DATA_HOME is ignored. Raises LocalError if no home directory is known.
    """
    if chosen := environment.get("TIDELOG_HOME"):
        return Path(chosen).absolute()
    shared = environment.get("XDG_DATA_HOME", "")
    if os.path.isabs(shared):  # the XDG specification says to ignore a relative path
        return Path(shared, "tidelog")
    try:
        return Path("~/.local/share/tidelog").expanduser()
    except RuntimeError:
        raise LocalError("no home directory is known: set TIDELOG_HOME, or pass --data-dir") from None


def prepare_directory(directory: Path) -> Path:
    """Create the directory if needed, check that it is writable, and return it.

    Raises LocalError, which names the option for another directory, also for a name that is not UTF-8.
    """
    try:
        str(directory).encode()  # Java and the brokers' settings files need UTF-8 names
    except UnicodeEncodeError:
        raise LocalError(f"{directory}: the name is not UTF-8; choose another directory with --data-dir") from None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = "is not a directory" if isinstance(error, (FileExistsError, NotADirectoryError)) else error.strerror
        raise LocalError(
            f"cannot write to {directory}: {reason}; choose another directory with --data-dir or TIDELOG_HOME"
        ) from None
    return directory


def remember_last_up(data_dir: Path, home: Path) -> None:
    """Write the file in `home` by which later commands find this cluster without --data-dir.

    If `home` is not writable, nothing is written, and no error is raised.
    """
    try:
        home.mkdir(parents=True, exist_ok=True)
        new = home / f".{_LAST_UP}-{os.getpid()}"
        new.write_text(json.dumps({"data_dir": str(data_dir)}) + "\n")
        new.replace(home / _LAST_UP)
    except OSError:
        return


def last_up(home: Path) -> Path | None:
    """Return the data directory of the last `tidelog up` by the file in `home`; None if it is unknown.

    The directory may not exist any more.
    """
    try:
        remembered = json.loads((home / _LAST_UP).read_text())
        return Path(remembered["data_dir"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget_last_up(data_dir: Path, home: Path) -> None:
    """Remove the file of the last `up` from `home`, if it names this data directory."""
    if last_up(home) == data_dir:
        (home / _LAST_UP).unlink(missing_ok=True)


def up_command(data_dir: Path, home: Path) -> str:
    """Return the command that starts the cluster in `data_dir`."""
    return "tidelog up" + _data_dir_option(data_dir, home)


def down_command(data_dir: Path, home: Path) -> str:
    """Return the command that stops the cluster in `data_dir`."""
    return "tidelog down" + _data_dir_option(data_dir, home)


def _data_dir_option(data_dir: Path, home: Path) -> str:
    return "" if data_dir == home else f" --data-dir {shlex.quote(str(data_dir))}"
