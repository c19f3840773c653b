"""Write the message classes: `python -m tools.kafka_messages DIRECTORY`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tidelog.protocol.kafka.schema import Versions
from tools.kafka_messages.definitions import MessageDefinition, read_definition
from tools.kafka_messages.families import FAMILIES
from tools.kafka_messages.render import render_apis, render_family

_PACKAGE = Path(__file__).parents[2] / "tidelog" / "protocol" / "kafka"


def generate(directory: Path) -> dict[Path, str]:
    """Return the text of each generated file, not yet formatted."""
    files: dict[Path, str] = {}
    everything: list[tuple[str, MessageDefinition]] = []
    for family in FAMILIES:
        versions = {api: Versions.parse(text) for api, text in family.apis.items()}
        messages = [
            (read_definition(directory, f"{api}Request", valid), read_definition(directory, f"{api}Response", valid))
            for api, valid in versions.items()
        ]
        files[_PACKAGE / "messages" / f"{family.file}.py"] = render_family(family, messages)
        everything += [(family.file, request) for request, _ in messages]
    files[_PACKAGE / "apis.py"] = render_apis(everything)
    return files


def _format(paths: Iterable[Path]) -> None:
    for command in (["check", "--fix", "--quiet"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, *map(str, paths)], check=True)


def main() -> None:
    """Write the files. Exit with status 2 if DIRECTORY is no directory, and with 1 if it lacks a definition."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.kafka_messages", description="Writes the classes of Kafka's messages."
    )
    parser.add_argument("directory", type=Path, help="the directory of Kafka's message definitions (*.json)")
    directory: Path = parser.parse_args().directory
    if not directory.is_dir():
        parser.error(f"{directory} is no directory")
    try:
        files = generate(directory)
    except FileNotFoundError as error:
        sys.exit(f"{error.filename} does not exist")
    for path, text in files.items():
        path.write_text(text)
    _format(files)


if __name__ == "__main__":
    main()
