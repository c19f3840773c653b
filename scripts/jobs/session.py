"""Starts Spark for the jobs in this folder: quiet, on this machine only, within a given heap."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from pyspark.sql import SparkSession

#: All times are UTC. State stores and shuffles have as many partitions as a small machine has cores.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # On few cores a short job gains more if the JVM compiles less.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # For the same reason Spark does not plan again after each shuffle. Shuffled data are small or evenly distributed.
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",
}


def start(
    name: str, *, master: str, driver_memory: str, warehouse: Path, settings: dict[str, str] | None = None
) -> SparkSession:
    """Return a session of its own JVM, which the caller stops. `settings` replace the defaults."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Spark starts its Python by an unquoted shell line, in which a path with a space would break. A name works.
    python = Path(sys.executable)
    os.environ["PATH"] = os.pathsep.join((str(python.parent), os.environ.get("PATH", os.defpath)))
    os.environ.setdefault("PYSPARK_PYTHON", python.name)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python.name)
    builder = SparkSession.builder.appName(name).master(master).config("spark.driver.memory", driver_memory)
    builder = builder.config("spark.sql.warehouse.dir", str(warehouse))
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def one_line(error: BaseException) -> str:
    """Return the error's message in one line, without the stack traces of two languages."""
    text = str(error).strip() or type(error).__name__
    ours = re.findall(r"tidelog\.errors\.\w+: (.+)", text)
    return str(ours[-1] if ours else text.splitlines()[0]).strip()
