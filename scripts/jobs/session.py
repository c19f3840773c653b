"""One way to start Spark for the jobs beside this file: quiet, on this machine only, within a given heap."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from pyspark.sql import SparkSession

#: Times are UTC everywhere; state stores and shuffles get as many parts as a small machine has cores.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # On few cores a short job gains more from cores that do not compile than from better compiled code.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # The same holds for planning again after each shuffle: what is shuffled here is small, or known to be even.
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
    """A session of its own JVM; `settings` win over the defaults. The caller stops it."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Spark looks for its Python by an unquoted shell line: a path with a space in it would not be found, a name is.
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
    """What went wrong, without the traces of two languages around it."""
    text = str(error).strip() or type(error).__name__
    ours = re.findall(r"tidelog\.errors\.\w+: (.+)", text)
    return str(ours[-1] if ours else text.splitlines()[0]).strip()
