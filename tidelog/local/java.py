"""Finds a Java that is new enough for the ZooKeeper of pyspark's wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tidelog.errors import LocalError

OLDEST_JAVA = 17
_ADVICE = f"Java {OLDEST_JAVA} or newer is needed for the embedded ZooKeeper: apt-get install openjdk-17-jre-headless"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the `java` of JAVA_HOME, or else of PATH, that is OLDEST_JAVA or newer.

    Raises LocalError, which says what to install, if neither is.
    """
    refused: list[str] = []
    for java in dict.fromkeys(_candidates(environment)):  # JAVA_HOME's may be on PATH as well
        version = _major_version(java)
        if version is not None and version >= OLDEST_JAVA:
            return java
        refused.append(f"{java} is Java {version}" if version is not None else f"{java} does not report its version")
    raise LocalError(f"{_ADVICE} ({'; '.join(refused)})" if refused else _ADVICE)


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home and os.access(java := Path(home, "bin", "java"), os.X_OK):
        yield java
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(found)


def _major_version(java: Path) -> int | None:
    # Reading the release file is fast, but starting a JVM only for its version takes 50 ms and more.
    try:
        release = (java.resolve().parent.parent / "release").read_text(errors="replace")
    except OSError:
        release = ""
    if match := _RELEASE.search(release):
        return int(match[1])
    try:
        result = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(result.stderr + result.stdout)
    return int(match[1]) if match else None
