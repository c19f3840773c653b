"""Where this user's clusters lie, and which of them was started last."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from tidelog.errors import LocalError

_LAST_UP = "last-up.json"


def data_home(environment: Mapping[str, str] = os.environ) -> Path:
    """TIDELOG_HOME, else XDG_DATA_HOME/tidelog, else ~/.local/share/tidelog; absolute, perhaps not there yet."""
    if chosen := environment.get("TIDELOG_HOME"):
        return Path(chosen).absolute()
    shared = environment.get("XDG_DATA_HOME", "")
    if os.path.isabs(shared):  # its specification asks to ignore a relative one
        return Path(shared, "tidelog")
    try:
        return Path("~/.local/share/tidelog").expanduser()
    except RuntimeError:
        raise LocalError("no home directory is known: set TIDELOG_HOME, or pass --data-dir") from None


def prepare_directory(directory: Path) -> Path:
    """Creates it where needed and makes sure that we can write there; LocalError says where to go instead."""
    try:
        str(directory).encode()  # Java and the brokers' settings files know no other names
    except UnicodeEncodeError:
        raise LocalError(f"{directory}: its name is not UTF-8; choose another place with --data-dir") from None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = "is not a directory" if isinstance(error, (FileExistsError, NotADirectoryError)) else error.strerror
        raise LocalError(
            f"cannot write to {directory}: {reason}; choose another place with --data-dir or TIDELOG_HOME"
        ) from None
    return directory


def remember_last_up(data_dir: Path, home: Path) -> None:
    """Lets later commands find this cluster. Does nothing where the home cannot be written: --data-dir still works."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        new = home / f".{_LAST_UP}-{os.getpid()}"
        new.write_text(json.dumps({"data_dir": str(data_dir)}) + "\n")
        new.replace(home / _LAST_UP)
    except OSError:
        return


def last_up(home: Path) -> Path | None:
    """The data directory of this user's last `up`."""
    try:
        remembered = json.loads((home / _LAST_UP).read_text())
        return Path(remembered["data_dir"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget_last_up(data_dir: Path, home: Path) -> None:
    """After a purge nothing is left to find."""
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
