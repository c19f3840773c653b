"""Reads a topic with Spark for `spark_read`, and prints one line of JSON.

Run by `python -m tools.bench.spark.spark_job BOOTSTRAP TOPIC DIRECTORY`.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pyspark.sql import DataFrame, SparkSession

_READS = 4
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def main() -> None:
    bootstrap, topic, directory = sys.argv[1:]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("bench").master("local[2]").config("spark.sql.warehouse.dir", directory)
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    seconds = []
    for _ in range(_READS):
        started = time.perf_counter()
        _source(spark, bootstrap, topic).write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - started)
    rows = _source(spark, bootstrap, topic).count()
    spark.stop()
    print(json.dumps({"rows": rows, "seconds": seconds}))


def _source(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    reader = spark.read.format("tidelog").option("tidelog.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


if __name__ == "__main__":
    main()
