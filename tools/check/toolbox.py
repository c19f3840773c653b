"""Finds Java and the jars of Kafka's brokers and tools, and fetches the jars once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

KAFKA_VERSION, KAFKA_4_VERSION = "3.9.1", "4.1.1"
DUMP_TOOL, BROKER, FORMAT_TOOL = "kafka.tools.DumpLogSegments", "kafka.Kafka", "kafka.tools.StorageTool"

_POM = Path(__file__).with_name("pom.xml")
_FETCH_TIMEOUT_S = 900


class NotRun(Exception):
    """Kafka's program cannot be run on this machine. The message says what is missing."""


def kafka_command(
    main_class: str, environment: Mapping[str, str] = os.environ, *, version: str = KAFKA_VERSION
) -> list[str]:
    """Return the command that starts one of Kafka's programs, without its arguments.

    Missing jars are fetched by Maven first, once for all runs. Raises NotRun if Java is missing or that fails.
    """
    java = _find_java(environment)
    jars = kafka_jars(environment, version=version)
    return [
        *(java, "-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
        *("-cp", f"{jars}/*", main_class),
    ]


def _find_java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    if home and os.access(java := os.path.join(home, "bin", "java"), os.X_OK):
        return java
    if found := shutil.which("java", path=environment.get("PATH", "")):
        return found
    raise NotRun("Kafka's tool needs Java: apt-get install openjdk-17-jre-headless")


def kafka_jars(environment: Mapping[str, str] = os.environ, *, version: str = KAFKA_VERSION) -> Path:
    """Return the directory of the jars, which Maven fetches first if it is missing. Raises NotRun if that fails."""
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog" / "kafka"
    jars = cache / f"{version}-{hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]}"
    if not jars.is_dir():
        _fetch(jars, environment, version)
    return jars


def _fetch(jars: Path, environment: Mapping[str, str], version: str) -> None:
    maven = shutil.which("mvn", path=environment.get("PATH", ""))
    if maven is None:
        raise NotRun(f"Maven fetches Kafka's tool into {jars}, once: apt-get install maven")
    try:
        jars.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jars.parent, prefix="fetching-") as scratch:
            draft = Path(scratch, "jars")
            command = [maven, "-q", "-B", "-Dstyle.color=never", "-f", str(_POM), f"-Dkafka.version={version}"]
            command += ["dependency:copy-dependencies", f"-DoutputDirectory={draft}", "-DincludeScope=runtime"]
            fetched = subprocess.run(
                command, cwd=scratch, env=dict(environment), stdin=subprocess.DEVNULL, timeout=_FETCH_TIMEOUT_S,
                capture_output=True, text=True, errors="replace", check=False,
            )  # fmt: skip
            if fetched.returncode or not any(draft.glob("kafka_*.jar")):
                errors = [line for line in fetched.stdout.splitlines() if "ERROR" in line]
                raise NotRun(f"Maven could not fetch Kafka's tool: {(errors or ['no reason given'])[0]}")
            # Another process that fetched meanwhile has fetched the same jars.
            if not jars.is_dir():
                draft.rename(jars)
    except (OSError, subprocess.TimeoutExpired) as error:
        if not jars.is_dir():
            raise NotRun(f"Kafka's tool could not be fetched: {error}") from None
