"""Spark for the tests: one session, quiet, small; a cluster that is a directory, and real clusters of each kind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
JOBS = HERE.parents[1] / "scripts" / "jobs"
# Spark's workers import the cluster from here by its plain name; the jobs import each other so.
sys.path[:0] = [str(path) for path in (HERE, JOBS) if str(path) not in sys.path]

pytest.importorskip("pyspark")

from file_cluster import FileCluster, FileSource  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from tests.any_kafka.clusters import CLUSTERS, AnyCluster, any_cluster  # noqa: E402


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session whose workers can import this directory; started when the first test asks for it."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # Tables of a few rows: compiling and re-planning their queries would take longer than running them.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2,4]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.dataSource.register(FileSource)
    yield session
    session.stop()


@pytest.fixture(scope="session", params=CLUSTERS)
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyCluster]:
    """Three brokers of Tidelog, Kafka 3.9 or Kafka 4. One kind runs at a time."""
    with any_cluster(request.param, tmp_path_factory.mktemp(request.param) / "cluster") as running:
        yield running


@pytest.fixture
def cluster(tmp_path: Path) -> FileCluster:
    directory = tmp_path / "cluster"
    directory.mkdir()
    return FileCluster(directory)
