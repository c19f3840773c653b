"""The result of `pip install` with each extra: each environment of these tests has the wheel and one extra."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.waiting import wait_for
from tests.reserved_ports import reserved_port
from tidelog import Admin, NewTopic, Producer
from tidelog.local.java import find_java

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UNPRIVILEGED = 65534

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("wheel")]

FOUR = "kazoo, orjson, prometheus_client and pyzmq, which are not installed: pip install"


@dataclass(frozen=True)
class Installation:
    """A virtual environment with the wheel, used as by a shell that has activated it and has no variables of Tidelog.

    user        the user id of the commands; None: this process's
    libraries   the directory of a Python that was built shared and then moved; "": it was not moved
    """

    directory: Path
    home: Path
    user: int | None = None
    libraries: str = ""

    def start(self, *command: str | Path, **environment: str) -> subprocess.Popen[str]:
        """Start a command of the environment, for example "tidelog" or "python"."""
        name, *arguments = map(str, command)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("TIDELOG", "PYTEST", "PYTHON"))}
        path = f"{self.directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
        moved = {"LD_LIBRARY_PATH": self.libraries} if self.libraries else {}
        own = moved | {
            "PATH": path,
            "HOME": str(self.home),
            "TIDELOG_HOME": str(self.home / "tidelog"),
            "TIDELOG_PORT": "0",
        }
        return subprocess.Popen(
            [str(self.directory / "bin" / name), *arguments],
            cwd=self.home,
            env={**kept, **own, **environment},
            user=self.user,
            group=self.user,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",
        )

    def run(self, *command: str | Path, given: str = "", **environment: str) -> tuple[int, str, str]:
        """Return the exit status, standard output and standard error of a command that ends by itself."""
        with self.start(*command, **environment) as process:
            try:
                output, complaint = process.communicate(given, 300)
            finally:
                process.kill()
        return process.returncode, output, complaint

    def succeed(self, *command: str | Path, given: str = "", **environment: str) -> str:
        status, output, complaint = self.run(*command, given=given, **environment)
        assert status == 0, f"{command}: {complaint}"
        return output

    def python(self, program: str, *arguments: str, **environment: str) -> str:
        """Return the standard output of a Python program that succeeds."""
        return self.succeed("python", "-P", "-c", program, *arguments, **environment)

    def packages(self) -> set[str]:
        """Return the names of the installed packages, without pip and setuptools."""
        return {re.split("==| @ ", line)[0] for line in self.succeed("pip", "freeze").splitlines()}


def administer(*command: str | Path) -> None:
    """Run a command with this process's settings, so that pip uses its cache."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheels = tmp_path_factory.mktemp("wheels")
    administer(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, ROOT)
    (built,) = wheels.glob("tidelog-*.whl")
    return built


@pytest.fixture
def install(wheel: Path, tmp_path: Path) -> Callable[[str], Installation]:
    """Return a function that makes an environment with the wheel and the extras in brackets: "[cli]", or ""."""

    def make(extras: str) -> Installation:
        (home := tmp_path / "home").mkdir()
        administer(sys.executable, "-m", "venv", tmp_path / "environment")
        administer(tmp_path / "environment/bin/python", "-m", "pip", "install", "-q", f"{wheel}{extras}")
        return Installation(tmp_path / "environment", home)

    return make


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run three brokers in the environment of the tests."""
    with running_cluster(tmp_path_factory.mktemp("brokers")) as started:
        yield started


CLIENTS = """
import asyncio, sys
from tidelog import Admin, Consumer, NewTopic, Producer, TopicPartition, aio

[_, servers] = sys.argv
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
with Admin(servers) as admin:
    admin.create_topics([NewTopic(f"base-{codec}", 1, 3) for codec in CODECS])
for codec in CODECS:
    with Producer(servers, compression_type=codec) as producer:
        producer.send(f"base-{codec}", codec.encode() * 500, key=b"key").get(30)
    partition = TopicPartition(f"base-{codec}", 0)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        print(next(iter(consumer)).value == codec.encode() * 500)

async def read():
    async with aio.Consumer(bootstrap_servers=servers, group_id="base", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["base-zstd"])
        async for record in consumer:
            await consumer.commit()
            return record.key

print(asyncio.run(read()).decode())
"""


def test_base_installation_is_the_clients_with_all_codecs(
    install: Callable[[str], Installation], brokers: RunningCluster
) -> None:
    base = install("")
    assert base.packages() == {"tidelog", *(re.split("[>;]", each)[0] for each in PROJECT["dependencies"])}
    shown = base.python(CLIENTS, brokers.bootstrap_servers)
    assert shown.split() == [*["True"] * 5, "key"]
    line = "tidelog: the command line needs click, which is not installed: pip install 'tidelog[cli]'\n"
    assert base.run("tidelog", "topic", "list") == (1, "", line)


def test_cli_works_with_a_cluster_and_names_what_a_local_one_needs(
    install: Callable[[str], Installation], brokers: RunningCluster
) -> None:
    cli = install("[cli]")
    cluster = {"TIDELOG_BOOTSTRAP_SERVERS": brokers.bootstrap_servers}
    cli.succeed("tidelog", "topic", "create", "typed", "--partitions", "1", **cluster)
    cli.succeed("tidelog", "produce", "typed", given="one\ntwo\n", **cluster)
    assert sorted(cli.succeed("tidelog", "consume", "typed", **cluster).split()) == ["one", "two"]
    assert "typed" in cli.succeed("tidelog", "topic", "list", **cluster)
    [file] = list(brokers.local.broker_dir(1).glob("typed-0/*.log"))
    assert "batch" in cli.succeed("tidelog", "dump", str(file))

    assert cli.run("tidelog", "up") == (1, "", f"tidelog: a local cluster needs {FOUR} 'tidelog[local]'\n")
    assert cli.run("tidelog", "chaos") == (1, "", f"tidelog: tidelog chaos needs {FOUR} 'tidelog[local]'\n")
    (settings := cli.home / "broker.toml").write_text("")
    ended = cli.run("tidelog", "broker", "--config", str(settings))
    assert ended == (1, "", f"broker: a broker needs {FOUR} 'tidelog[broker]'\n")
    status, _, complaint = cli.run("python", "-P", "-m", "verify.checker", str(cli.home))
    assert (status, complaint) == (1, f"the checker needs {FOUR} 'tidelog[local]'\n")


def test_broker_extra_runs_a_broker_with_metrics_and_a_history(
    install: Callable[[str], Installation], brokers: RunningCluster
) -> None:
    extra = install("[broker]")
    client, replication, http = (f"127.0.0.1:{reserved_port()}" for _ in range(3))
    (settings := extra.home / "broker.toml").write_text(
        f"""
broker_id = 1
log_dirs = ["{extra.home}/log"]
zookeeper = "{brokers.zookeeper_hosts}/alone"
listeners = ["KAFKA://{client}", "REPLICATION://{replication}"]
http_listener = "{http}"
history_file = "{extra.home}/history.jsonl"
"""
    )
    with extra.start("python", "-P", "-m", "node", "--config", str(settings)) as broker:
        try:
            wait_for("the broker to be ready", lambda: broker.poll() is not None or answers(f"http://{http}/readyz"))
            with Admin(client) as admin, Producer(client) as producer:
                admin.create_topics([NewTopic("alone", 1, 1)])
                assert producer.send("alone", b"value").get(30).offset == 0
            with urlopen(f"http://{http}/metrics", timeout=30) as metrics:
                assert b"# TYPE tidelog_" in metrics.read()
            broker.send_signal(signal.SIGTERM)
            output, complaint = broker.communicate(timeout=60)
        finally:
            broker.kill()
    assert (broker.returncode, output) == (0, ""), complaint
    assert (extra.home / "history.jsonl").stat().st_size > 0


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@pytest.fixture
def for_everybody(wheel: Path) -> Iterator[Installation]:
    """Install the extra `local` as an administrator, for commands of a user who is not root, even if the tests are."""
    not_root = UNPRIVILEGED if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="tidelog wheel ") as name:
        place = Path(name)
        if not_root is not None:
            os.chown(place, not_root, not_root)
        administer(python_for_everybody(place), "-m", "venv", place / "environment")
        administer(place / "environment/bin/python", "-m", "pip", "install", "-q", f"{wheel}[local]")
        yield Installation(place / "environment", place, not_root, str(place / "python/lib"))


def test_local_extra_runs_a_cluster_for_an_unprivileged_user(for_everybody: Installation) -> None:
    local = for_everybody
    try:
        assert "bootstrap servers" in local.succeed("tidelog", "up", "--detach")
        local.succeed("tidelog", "topic", "create", "t", "--partitions", "2")
        local.succeed("tidelog", "produce", "t", given="one\ntwo\n\udcff\0three\n")
        assert sorted(local.succeed("tidelog", "consume", "t").splitlines()) == ["one", "two", "\udcff\0three"]
        # This environment has pyspark, for its jars, but not what the format tidelog needs.
        status, _, complaint = local.run("python", "-P", "-c", COUNT, "127.0.0.1:1", **java())
        missing = "the format tidelog needs numpy and pyarrow, which are not installed: pip install 'tidelog[spark]'"
        assert status == 1 and f"MissingExtraError: {missing}\n" in complaint, complaint
    finally:
        local.succeed("tidelog", "down")


def python_for_everybody(place: Path) -> Path:
    """Copy this Python to a place that the other user can read, because it may be in root's home."""
    here = Path(sys.base_prefix)
    there = place / "python"
    unneeded = shutil.ignore_patterns("test", "tests", "site-packages", "__pycache__", "*.a", "share")
    shutil.copytree(here, there, symlinks=True, ignore=unneeded)
    return there / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


COUNT = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("tidelog").option("tidelog.bootstrap.servers", sys.argv[1]).option("subscribe", "spark")
print(sorted(row.value.decode() for row in frame.load().select("value").collect()))
"""


def java() -> Mapping[str, str]:
    """Return the environment in which Spark finds Java, and binds no other address than loopback."""
    return {"JAVA_HOME": str(find_java().resolve().parents[1]), "SPARK_LOCAL_IP": "127.0.0.1"}


def test_spark_extra_reads_a_topic(install: Callable[[str], Installation], brokers: RunningCluster) -> None:
    extra = install("[spark]")
    brokers.create_topic("spark", 2)
    with Producer(brokers.bootstrap_servers) as producer:
        for partition, value in enumerate((b"one", b"two")):
            producer.send("spark", value, partition=partition).get(30)
    assert extra.python(COUNT, brokers.bootstrap_servers, **java()).splitlines()[-1] == "['one', 'two']"
    assert not {"click", "kazoo", "pyzmq"} & extra.packages()


COLUMNS = """
from tidelog.records.columns import decode_buffers
import pyarrow
print(pyarrow.array(decode_buffers(b"").offsets).type)
"""


def test_arrow_extra_has_the_packages_of_columns(install: Callable[[str], Installation]) -> None:
    extra = install("[arrow]")
    assert extra.python(COLUMNS) == "int64\n"
    assert not {"click", "kazoo", "pyspark"} & extra.packages()
