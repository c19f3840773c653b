"""A real ZooKeeper of one process, from the jars that pyspark's wheel carries."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import time
from pathlib import Path
from types import TracebackType

from tidelog.clock import Clock, SystemClock
from tidelog.errors import LocalError
from tidelog.local.java import find_java
from tidelog.local.processes.log_tail import last_words
from tidelog.local.processes.ports import choose_port, port_is_free
from tidelog.local.processes.process import Process
from tidelog.local.processes.process_placement import HERE, Place
from tidelog.model import Endpoint
from tidelog.quantities import format_duration

TICK_MS = 500
#: What ZooKeeper grants a session: 2 to 20 ticks.
MIN_SESSION_TIMEOUT_MS, MAX_SESSION_TIMEOUT_MS = 2 * TICK_MS, 20 * TICK_MS

#: How long our own server, and somebody else's, may take to answer.
_ANSWER_S, _CONNECT_S = 1.0, 3.0

# QuorumPeerMain runs a single server too, and unlike ZooKeeperServerMain it purges old snapshots.
_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JARS = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "commons-io-*.jar",
    "netty-common-*.jar",
    "netty-buffer-*.jar",
    "netty-resolver-[0-9]*.jar",
    "netty-codec-[0-9]*.jar",
    "netty-handler-[0-9]*.jar",
    "netty-transport-[0-9]*.jar",
    "netty-transport-classes-epoll-*.jar",
)
# 88 MB resident, ready in 0.4 to 0.6 s: the small collector and compiler are what a mostly idle server needs.
_JVM_OPTIONS = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dzookeeper.preAllocSize=4096",
    "-Dlog4j2.configurationFile=./log4j2.properties",
)
_SETTINGS = """\
dataDir=./data
clientPort={port}
clientPortAddress={host}
tickTime={tick_ms}
minSessionTimeout={min_session_ms}
maxSessionTimeout={max_session_ms}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok,mntr
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""
_LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}} %p %c{{1}}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 4MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""
_PORT_SETTING = re.compile(r"^clientPort=(\d+)$", re.MULTILINE)


class EmbeddedZooKeeper:
    """One server whose state stays in `data_dir` from one start to the next.

    `port` 0 takes the port of the last start, or chooses a free one at the first. The process runs in its own
    session and outlives us unless `stop` is called; `process` may be handed in to take over one that runs already.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        log_file: Path | None = None,
        process: Process | None = None,
        clock: Clock | None = None,
        place: Place = HERE,
    ) -> None:
        self.data_dir = data_dir
        self.port = port or _port_of_last_start(data_dir)
        self.log_file = log_file or data_dir / "zookeeper.log"
        self.process = process
        self.place = place
        self._clock = clock or SystemClock()

    @property
    def hosts(self) -> str:
        """`host:port`, as clients want it; known once it was started."""
        return str(Endpoint(self.place.address, self.port))

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.running

    def __enter__(self) -> EmbeddedZooKeeper:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, timeout_ms: int = 20_000) -> None:
        """Launches it and waits until it serves. LocalError names what is missing, or why it did not come up."""
        self.launch()
        self.wait_ready(timeout_ms)

    def launch(self) -> Process:
        """Starts the process without waiting for it."""
        command = [
            *self.place.prefix,
            str(find_java()),
            *_JVM_OPTIONS,
            "-cp",
            os.pathsep.join(map(str, find_jars())),
            _MAIN_CLASS,
            "./zoo.cfg",
        ]
        if self.port and not self.place.prefix and not port_is_free(self.port):
            raise LocalError(
                f"port {self.port}, which ZooKeeper was given, is taken: stop what listens there (ss -ltnp)"
            )
        self.port = self.port or choose_port()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        self._write_settings()
        self.process = Process.spawn(
            command,
            output=self._output,
            directory=self.data_dir,
            environment={**os.environ, **self.place.environment},
        )
        return self.process

    def wait_ready(self, timeout_ms: int) -> None:
        """Until it answers `srvr` as a serving server."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while not serves(Endpoint(self.place.address, self.port)):
            if not self.running:
                raise LocalError(
                    f"ZooKeeper ended while it started: {last_words(self._output, self.log_file)} (see {self.log_file})"
                )
            if self._clock.monotonic_ms() >= deadline_ms:
                self.stop()
                raise LocalError(f"ZooKeeper was not ready within {format_duration(timeout_ms)}: see {self.log_file}")
            time.sleep(0.02)

    def stop(self, timeout_ms: int = 10_000) -> None:
        """Ends our own process, and no other; does nothing where it does not run."""
        if self.process is not None:
            self.process.stop(timeout_ms)
            self.process = None

    @property
    def _output(self) -> Path:
        return self.log_file.with_suffix(".out")

    def _write_settings(self) -> None:
        # Paths stay relative to the working directory: a properties file would need the odd ones escaped.
        settings = _SETTINGS.format(
            port=self.port,
            host=self.place.address,
            tick_ms=TICK_MS,
            min_session_ms=MIN_SESSION_TIMEOUT_MS,
            max_session_ms=MAX_SESSION_TIMEOUT_MS,
        )
        (self.data_dir / "zoo.cfg").write_text(settings)
        log = os.path.relpath(self.log_file.resolve(), self.data_dir.resolve())
        (self.data_dir / "log4j2.properties").write_text(_LOGGING.format(log=log))


def find_jars() -> list[Path]:
    """The few jars of pyspark's wheel that ZooKeeper needs. LocalError says what to install."""
    # Looked up, not imported: importing pyspark takes longer than starting ZooKeeper.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise LocalError(
            "the embedded ZooKeeper comes with pyspark: pip install 'tidelog[local]', or pass --zookeeper HOST:PORT"
        )
    directory = Path(spec.submodule_search_locations[0], "jars")
    jars = [jar for pattern in _JARS for jar in sorted(directory.glob(pattern))]
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise LocalError(
            f"no ZooKeeper in {directory}: pip install --force-reinstall pyspark, or pass --zookeeper HOST:PORT"
        )
    return jars


def serves(endpoint: Endpoint) -> bool:
    """Whether a ZooKeeper there is past its start-up and serves requests."""
    answer = b""
    try:
        with socket.create_connection((endpoint.host, endpoint.port), _ANSWER_S) as connection:
            connection.sendall(b"srvr")
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return False
    return b"\nMode: " in answer


def require_zookeeper(hosts: str) -> None:
    """LocalError where nobody listens at any of `host:port,host:port/chroot`: better here than in every broker."""
    reasons = []
    for host in hosts.partition("/")[0].split(","):
        try:
            endpoint = Endpoint.parse(host)
            socket.create_connection((endpoint.host, endpoint.port), _CONNECT_S).close()
            return
        except (OSError, ValueError) as error:
            reasons.append(f"{host}: {error.strerror or error}" if isinstance(error, OSError) else str(error))
    raise LocalError(f"no ZooKeeper answers ({'; '.join(reasons)}): start it, or pass another --zookeeper HOST:PORT")


def _port_of_last_start(data_dir: Path) -> int:
    try:
        match = _PORT_SETTING.search((data_dir / "zoo.cfg").read_text())
    except OSError:
        return 0
    return int(match[1]) if match else 0
