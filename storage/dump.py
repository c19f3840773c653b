"""`tidelog dump`: print the contents of the files in a log directory, and the places where they are damaged.

A finding is a line: its kind, then `name=value` for each field that is set. With `--json` it is an object.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from storage.inspection import Damage, Fact, Finding, Value, files_below, inspect
from tidelog.cli.commands import Command
from tidelog.timestamps import format_time


@click.command(cls=Command)
@click.argument("paths", metavar="FILE…", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--records", is_flag=True, help="Also show the records of each batch.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object per line.")
def dump(paths: Iterable[Path], records: bool, as_json: bool) -> None:
    """Show the contents of log files, or of all files in a directory. Exit status 1 if one is damaged."""
    files = damaged = 0
    first = ""
    write = sys.stdout.write
    for path in paths:
        for file in files_below(path):
            files += 1
            good_bytes: int | None = None
            findings = inspect(file, records=records)
            if not as_json:
                write(f"{file}\n")
            for finding in findings:
                if isinstance(finding, Damage) and good_bytes is None:
                    good_bytes = finding.position
                    first = first or f"{file}: byte {finding.position}: {finding.reason}"
                write(_json_line(file, finding, good_bytes) if as_json else _text_line(finding, good_bytes))
            damaged += good_bytes is not None
    if not files:
        raise click.ClickException("found no log files at the given paths")
    if damaged:
        raise click.ClickException(f"{damaged} of {files} files damaged, the first {first}")


def _text_line(finding: Finding, good_bytes: int | None) -> str:
    if isinstance(finding, Damage):
        return f"  DAMAGED at byte {finding.position}: {finding.reason} (good up to byte {good_bytes})\n"
    shown = (f"{name}={_text(name, value)}" for name, value in finding.fields.items() if _is_set(name, value))
    return f"  {finding.what} {' '.join(shown)}\n"


def _is_set(name: str, value: Value) -> bool:
    """Return whether the field is shown. A record's key and value are shown even if they are null."""
    return name in ("key", "value") or not (value is None or value is False or value == [])


def _text(name: str, value: Value) -> str:
    if name.endswith("timestamp") and isinstance(value, int):
        return format_time(value)
    return str(value) if isinstance(value, str) and " " not in value else json.dumps(_plain(value), ensure_ascii=False)


def _json_line(file: Path, finding: Finding, good_bytes: int | None) -> str:
    if isinstance(finding, Fact):
        fields: dict[str, object] = {"what": finding.what, **{k: _plain(v) for k, v in finding.fields.items()}}
    else:
        fields = {"what": "damage", **finding._asdict(), "good_bytes": good_bytes}
    return json.dumps({"file": str(file), **fields}, ensure_ascii=False) + "\n"


def _plain(value: Value) -> object:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [[name, _plain(content)] for name, content in value]
    return value
