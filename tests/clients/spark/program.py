"""Drives Spark's own Kafka source and sink, as `../adapters/client_program.py` says.

    python program.py JARS SERVERS

`read` and `write` are batches. `copy` is a streaming query from one topic to another. With `available_now` the query
ends by itself. Without it, the query runs until a further line arrives. The result is the number of batches that had
records.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

Command = Mapping[str, Any]

#: A row of `write`: topic, partition, key, value and headers.
ROWS = "topic string, partition int, key binary, value binary, headers array<struct<key: string, value: binary>>"


def start_session(jars: str) -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.jars": ",".join(os.path.join(jars, name) for name in sorted(os.listdir(jars))),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2,4]").appName("clients")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Program:
    def __init__(self, session: SparkSession, servers: str) -> None:
        self._session = session
        self._servers = servers

    def perform(self, command: Command) -> object:
        return {"read": self._read, "write": self._write, "copy": self._copy}[command["do"]](command)

    def _read(self, command: Command) -> object:
        """Return the rows, in the order of partitions and offsets."""
        reader = self._session.read.format("kafka").option("kafka.bootstrap.servers", self._servers)
        rows = reader.options(**command["options"]).load().orderBy("topic", "partition", "offset").collect()
        return [
            {
                "topic": row.topic,
                "partition": row.partition,
                "offset": row.offset,
                "timestamp_ms": round(row.timestamp.timestamp() * 1000),
                "key": _text(row.key),
                "value": _text(row.value),
                "headers": [[each.key, _text(each.value)] for each in row.headers or ()] if "headers" in row else [],
            }
            for row in rows
        ]

    def _write(self, command: Command) -> object:
        rows = [
            (
                each["topic"],
                each["partition"],
                _bytes(each["key"]),
                _bytes(each["value"]),
                [(name, _bytes(value)) for name, value in each["headers"]],
            )
            for each in command["rows"]
        ]
        frame = self._session.createDataFrame(rows, ROWS)
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", self._servers)
        writer.options(**command["options"]).save()
        return len(rows)

    def _copy(self, command: Command) -> object:
        stream = self._session.readStream.format("kafka").option("kafka.bootstrap.servers", self._servers)
        source = stream.options(subscribe=command["from"], **command["options"]).load()
        copied: DataFrame = source.select(functions.lit(command["to"]).alias("topic"), "key", "value")
        writer = copied.writeStream.format("kafka").option("kafka.bootstrap.servers", self._servers)
        writer = writer.option("checkpointLocation", command["checkpoint"])
        if command["available_now"]:
            query = writer.trigger(availableNow=True).start()
        else:
            query = writer.start()
            _say({"running": True})
            sys.stdin.readline()
            query.processAllAvailable()
            query.stop()
        query.awaitTermination()
        return sum(each.numInputRows > 0 for each in query.recentProgress)


def _say(line: Mapping[str, object]) -> None:
    print(json.dumps(line), flush=True)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def main(jars: str, servers: str) -> None:
    session = start_session(jars)
    program = Program(session, servers)
    for line in iter(sys.stdin.readline, ""):
        try:
            answer = {"result": program.perform(json.loads(line))}
        except Exception as error:
            answer = {"error": str(error)}
        _say(answer)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
