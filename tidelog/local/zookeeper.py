"""A ZooKeeper server of one process, from the jars in pyspark's wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tidelog.clock import Clock, SystemClock
from tidelog.errors import LocalError
from tidelog.local.java import find_java
from tidelog.local.processes.log_tail import last_error_line
from tidelog.local.processes.ports import choose_port, port_is_free
from tidelog.local.processes.process import Process
from tidelog.local.processes.process_placement import DEFAULT_PLACEMENT, Placement
from tidelog.model import Endpoint
from tidelog.quantities import format_duration

TICK_MS = 500
#: The session timeouts that ZooKeeper grants: 2 to 20 ticks.
MIN_SESSION_TIMEOUT_MS, MAX_SESSION_TIMEOUT_MS = 2 * TICK_MS, 20 * TICK_MS

#: The time for an answer of our own server, and for a connection to an external one.
_ANSWER_S, _CONNECT_S = 1.0, 3.0

# QuorumPeerMain can run a single server, and unlike ZooKeeperServerMain it purges old snapshots.
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
# The small collector and compiler suit a mostly idle server: 88 MB resident, ready in 0.4 to 0.6 s.
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
    """One server whose state stays in `data_dir` across starts. As a context manager it starts and stops the server.

    port       0 means the port of the last start, or a free one at the first start
    log_file   by default a file in `data_dir`
    process    a process of this server that runs already; None: not started

    The process runs in its own session and outlives this object unless `stop` is called.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        log_file: Path | None = None,
        process: Process | None = None,
        clock: Clock | None = None,
        place: Placement = DEFAULT_PLACEMENT,
    ) -> None:
        self.data_dir = data_dir
        self.port = port or _port_of_last_start(data_dir)
        self.log_file = log_file or data_dir / "zookeeper.log"
        self.process = process
        self.place = place
        self._clock = clock or SystemClock()
        self._held = ExitStack()

    @property
    def hosts(self) -> str:
        """The server's `host:port` for clients; the port is 0 before the first start if none was given."""
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

    def start(self, timeout_ms: int = 60_000) -> None:
        """Start the server and wait until it serves, at most `timeout_ms`.

        Raises LocalError with what is missing, or why the start failed.
        """
        self.launch()
        self.wait_ready(timeout_ms)

    def launch(self) -> Process:
        """Write the server's settings, start its process, and return the process without waiting until it serves.

        Raises LocalError if Java or ZooKeeper's jars are missing, or if the port is in use.
        """
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
            raise LocalError(f"port {self.port} of ZooKeeper is in use: stop the process that listens there (ss -ltnp)")
        self.port = self.port or choose_port(self._held)
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
        """Wait until the server serves. Raise LocalError if its process ends first.

        A server that does not serve after `timeout_ms` is stopped, and LocalError is raised.
        """
        with self._held:
            self._wait_until_it_serves(timeout_ms)

    def _wait_until_it_serves(self, timeout_ms: int) -> None:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while not serves(Endpoint(self.place.address, self.port)):
            if not self.running:
                raise LocalError(
                    f"ZooKeeper ended while it started: {last_error_line(self._output, self.log_file)} "
                    f"(see {self.log_file})"
                )
            if self._clock.monotonic_ms() >= deadline_ms:
                self.stop()
                raise LocalError(f"ZooKeeper was not ready within {format_duration(timeout_ms)}: see {self.log_file}")
            time.sleep(0.02)

    def stop(self, timeout_ms: int = 10_000) -> None:
        """Send SIGTERM to the process, if there is one, and wait until it has ended; after `timeout_ms` kill it."""
        if self.process is not None:
            self.process.stop(timeout_ms)
            self.process = None

    @property
    def _output(self) -> Path:
        return self.log_file.with_suffix(".out")

    def _write_settings(self) -> None:
        # Paths are relative to the working directory, because a properties file would need escapes in absolute ones.
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
    """Return the jars of pyspark's wheel that ZooKeeper needs, ZooKeeper's own first.

    Raises LocalError, which says what to install, if pyspark or its ZooKeeper is missing.
    """
    # The package is found without an import, because importing pyspark takes longer than starting ZooKeeper.
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
    """Return whether a ZooKeeper server at the endpoint serves requests now, by its answer to `srvr`."""
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
    """Return if one server of `host:port,host:port/chroot` accepts a connection; otherwise raise LocalError.

    Whether the server is a ZooKeeper that serves is not checked.
    """
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
