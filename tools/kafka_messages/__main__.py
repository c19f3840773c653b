"""Write the message classes: `python -m tools.kafka_messages DIRECTORY`."""

from __future__ import annotations

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
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.kafka_messages DIRECTORY")
    files = generate(Path(sys.argv[1]))
    for path, text in files.items():
        path.write_text(text)
    _format(files)


if __name__ == "__main__":
    main()
