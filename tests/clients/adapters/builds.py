"""Builds the client programs of other languages in the user's cache directory, once for each state of their sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1]
#: Each JVM is small, because a test may run several of them beside three brokers.
JVM_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
#: The newest version of Spark's Kafka source that Maven Central has; it runs in the PySpark of the tests.
SPARK_KAFKA_VERSION = "4.2.0"
_SPARK_ARTIFACTS = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)
_BUILD_TIMEOUT_S = 600


@cache
def java_client(version: str) -> list[str]:
    """Return the command of the Java program, whose clients have this version of Kafka's."""
    directory = _built(SOURCES / "java", version, lambda source, target: _build_java(version, source, target))
    return [_program("java"), *JVM_OPTIONS, "-cp", f"{directory}/*", "Client"]


@cache
def spark_program() -> list[str]:
    """Return the command of the program that drives Spark's Kafka source and sink."""
    jars = _built(SOURCES / "spark", SPARK_KAFKA_VERSION, _fetch_spark_jars)
    return [sys.executable, "-P", str(SOURCES / "spark" / "program.py"), str(jars)]


@cache
def go_client() -> str:
    """Return the path of the Go program."""
    return str(_built(SOURCES / "go", "", _build_go) / "client")


@cache
def go_module_version(module: str) -> str:
    """Return the version of a module that the Go program has."""
    for line in (SOURCES / "go" / "go.mod").read_text().splitlines():
        if line.strip().startswith(f"{module} "):
            return line.split()[1].removeprefix("v")
    raise AssertionError(f"go.mod has no {module}")


def _build_java(version: str, source: Path, target: Path) -> None:
    command = [_program("mvn"), "-q", "-B", "-Dstyle.color=never", f"-Dkafka.version={version}", "package"]
    copied = ["dependency:copy-dependencies", f"-DoutputDirectory={target}", "-DincludeScope=runtime"]
    _run([*command, *copied], source)
    shutil.copy(source / "target" / "client.jar", target)


def _fetch_spark_jars(source: Path, target: Path) -> None:
    copied = ["dependency:copy-dependencies", f"-DoutputDirectory={target}", "-DincludeScope=runtime"]
    # PySpark has all other jars that the source needs.
    names = f"-DincludeArtifactIds={','.join(_SPARK_ARTIFACTS)}"
    version = f"-Dspark.version={SPARK_KAFKA_VERSION}"
    _run([_program("mvn"), "-q", "-B", "-Dstyle.color=never", version, *copied, names], source)


def _build_go(source: Path, target: Path) -> None:
    _run([_program("go"), "build", "-o", str(target / "client"), "."], source)


def _built(source: Path, version: str, build: Callable[[Path, Path], None]) -> Path:
    """Return the directory of the build; `build` gets a copy of the sources and an empty directory."""
    files = sorted(path for path in source.rglob("*") if path.is_file())
    digest = hashlib.sha256(version.encode())
    for path in files:
        digest.update(path.relative_to(source).as_posix().encode() + b"\0" + path.read_bytes())
    builds = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog" / "clients"
    directory = builds / f"{source.name}-{version}-{digest.hexdigest()[:16]}"
    if not directory.is_dir():
        builds.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=builds, prefix="building-") as scratch:
            copy, target = Path(scratch, "source"), Path(scratch, "target")
            shutil.copytree(source, copy)
            target.mkdir()
            build(copy, target)
            # Another process that built meanwhile has built the same.
            if not directory.is_dir():
                target.rename(directory)
    return directory


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"this machine has no {name}")
    return found


def _run(command: Sequence[str], directory: Path) -> None:
    ended = subprocess.run(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_BUILD_TIMEOUT_S,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{' '.join(command)}:\n{ended.stdout}"
