"""Starts, stops and describes the processes of one cluster on this machine.

DATA_DIR/cluster.json      ports and processes (tidelog.local.state)
DATA_DIR/config/           a settings file for each broker, which each start writes again
DATA_DIR/logs/             the logs of the processes, rotated
DATA_DIR/broker-N/         the broker's partitions
DATA_DIR/zookeeper/        the embedded ZooKeeper's state
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM
from typing import TypeVar

from tidelog.clock import Clock, SystemClock
from tidelog.errors import LocalError
from tidelog.extras import require
from tidelog.local.broker import check_settings, launch_broker
from tidelog.local.home import data_home, down_command, forget_last_up, prepare_directory, remember_last_up
from tidelog.local.processes.log_tail import last_error_line
from tidelog.local.processes.ports import choose_port
from tidelog.local.processes.process import Condition, Process
from tidelog.local.processes.process_placement import DEFAULT_PLACEMENT, ZOOKEEPER, Placement
from tidelog.local.readiness import why_not_ready
from tidelog.local.shared_settings import setting_names
from tidelog.local.state import STATE_FILE, BrokerState, ClusterState, ProcessState, load_state, save_state
from tidelog.local.zookeeper import EmbeddedZooKeeper, require_zookeeper, serves
from tidelog.quantities import format_duration

P = TypeVar("P", bound=ProcessState)

DEFAULT_BROKERS = 3
START_TIMEOUT_MS = 60_000
#: A broker hands over its leadership before it ends, for at most its `controlled_shutdown_timeout_ms`.
STOP_TIMEOUT_MS = 20_000
#: How often `start` reports the processes that it still waits for.
WAIT_REPORT_MS = 3_000
_LOCK_FILE = "cluster.lock"

#: Called with the name and address of each ready process: ("ZooKeeper", "127.0.0.1:20181"), ("broker 1", …).
OnReady = Callable[[str, str], None]
#: Called with (process, reason, ms so far) while `start` waits: ("broker 1 (pid 4711)", "not ready: …", 3000).
OnWait = Callable[[str, str, int], None]
#: Called with each of the `lost_directories` before its broker starts.
OnLost = Callable[[Path], None]


class LocalCluster:
    """One data directory and the processes that work in it. The processes outlive this object.

    home     the directory with the file of the last `tidelog up`; by default `data_home()`
    state    the state that this object has last read or written, None if no cluster was ever started here; `refresh`
             reads the changes of other commands
    places   the placement of processes by broker id ("1") or "zookeeper", which applies at each start of a process; a
             process without one runs on this machine as usual

    From their next start on, brokers write their histories into the directory `histories`; None keeps the directory of
    the state. Methods that start or stop processes raise LocalError while another command does so (`locked`).
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        home: Path | None = None,
        clock: Clock | None = None,
        places: Mapping[str, Placement] | None = None,
        histories: Path | None = None,
    ) -> None:
        self.home = home or data_home()
        self.data_dir = (data_dir or self.home).absolute()
        self._clock = clock or SystemClock()
        self.places = dict(places or {})
        self._histories = histories
        self.state = load_state(self.data_dir)

    @property
    def log_dir(self) -> Path:
        return self.data_dir / "logs"

    def broker_dir(self, broker_id: int) -> Path:
        """The directory of the broker's partitions."""
        return self._place(broker_id).data_dir or self.data_dir / f"broker-{broker_id}"

    def log_file(self, broker_id: int | None = None) -> Path:
        """The log file of a broker, or of the embedded ZooKeeper (None); it may not exist yet."""
        return self.log_dir / ("zookeeper.log" if broker_id is None else f"broker-{broker_id}.log")

    @property
    def histories(self) -> Path | None:
        """The directory of the brokers' histories (ID.jsonl); None if the brokers write none."""
        known = self._histories or (self.state.histories if self.state else "")
        return Path(known) if known else None

    def refresh(self) -> ClusterState | None:
        self.state = load_state(self.data_dir)
        return self.state

    def known_state(self) -> ClusterState:
        """Return `state`, without reading it again.

        Raise LocalError if no cluster was ever started in this directory.
        """
        if self.state is None:
            raise LocalError(f"no cluster in {self.data_dir}: start one with tidelog up")
        return self.state

    def lost_directories(self) -> list[Path]:
        """Return the data directories that are missing now, of brokers that do not run and once had one.

        Such a broker starts with an empty directory.
        """
        stopped = [broker for broker in (self.state.brokers if self.state else ()) if not broker.running]
        directories = [self.broker_dir(broker.broker_id) for broker in stopped if broker.had_directory]
        return [directory for directory in directories if not directory.exists()]

    def start(
        self,
        brokers: int | None = None,
        *,
        zookeeper: str | None = None,
        settings: Mapping[str, str | int] | None = None,
        config: Path | None = None,
        port: int = 0,
        on_ready: OnReady = lambda process, address: None,
        on_lost: OnLost = lambda directory: None,
        on_wait: OnWait = lambda process, reason, waited_ms: None,
        timeout_ms: int = START_TIMEOUT_MS,
    ) -> ClusterState:
        """Start the processes of the cluster that do not run, and return the state when every broker knows every other.

        brokers     the number of brokers: None is DEFAULT_BROKERS at the first start, later the number in the cluster;
                    a larger number adds brokers, a smaller one is an error
        zookeeper   an external ZooKeeper ("host:port,…"); None starts an embedded one; may not change later
        settings    settings for every broker, added to those of earlier calls
        config      a file of settings for every broker, which is kept until another file is given
        port        the port of broker 1 for clients, if it is free; broker 2 gets the next one, and so on. Any free
                    port if it is taken, or if this is 0. A broker keeps the port that it has
        on_ready, on_lost, on_wait   called during the call: see `OnReady`, `OnLost` and `OnWait`

        Running brokers keep the settings that they have read. If this call fails or is interrupted, it stops the
        processes that it has started.

        Raises LocalError after `timeout_ms`, if a process ends while it starts, or if one of the cluster is suspended,
        because it keeps its ports and answers no request. Raises MissingExtraError before anything is written.
        """
        require("local", "a local cluster")
        prepare_directory(self.data_dir)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        with self.locked(), contextlib.ExitStack() as held:
            self.refresh()
            self._raise_if_suspended()
            planned = self._plan(brokers, zookeeper, settings, port, held)
            if config is not None:
                planned = replace(planned, config=str(config.absolute()))
            if setting_names(planned.config):
                check_settings(Path(planned.config))
            planned = replace(planned, histories=str(self.histories or ""))
            started: list[Process] = []
            try:
                self._save(planned)
                remember_last_up(self.data_dir, self.home)
                self._start_zookeeper(started, on_ready, deadline_ms)
                for directory in self.lost_directories():
                    on_lost(directory)
                for broker in self.known_state().brokers:
                    if not broker.running:
                        process = self._start_broker(broker)
                        started.append(process)
                self._wait_for_brokers(on_ready, deadline_ms, on_wait=on_wait)
                self._save(self.known_state())  # the brokers have created their directories by now
            except BaseException:
                _stop(started[::-1])
                self._forget(process.pid for process in started)
                raise
            return self.known_state()

    def stop(self) -> bool:
        """Stop all brokers at once by SIGTERM, then the embedded ZooKeeper. Return whether a process ran.

        A process that has not ended after STOP_TIMEOUT_MS is killed. The data stays.
        """
        with self.locked():
            return self._stop()

    def purge(self) -> tuple[bool, bool]:
        """Stop the cluster as `stop` does, and remove its data, logs and state. Other files in its directory stay.

        Return whether a process ran, and whether there was a cluster to remove.
        """
        with self.locked():  # one lock for both steps, so that no command starts a process in between
            return self._stop(), self._remove()

    def start_broker(
        self, broker_id: int, *, on_ready: OnReady = lambda process, address: None, timeout_ms: int = START_TIMEOUT_MS
    ) -> Process:
        """Start one broker that does not run, and return its process when the broker serves and is registered.

        If this call fails or is interrupted, it stops the broker again. Raises LocalError after `timeout_ms`, if the
        broker ends while it starts, or if its id is unknown.
        """
        with self.locked():
            process = self._launch_broker(broker_id)
            try:
                self._wait_for_brokers(on_ready, self._clock.monotonic_ms() + timeout_ms, only=broker_id)
            except BaseException:
                _stop([process])
                raise
            return process

    def launch_broker(self, broker_id: int) -> Process:
        """Start one broker that does not run, and return its process without waiting until it serves.

        Raises LocalError if the id is unknown, or if another command holds the lock.
        """
        with self.locked():
            return self._launch_broker(broker_id)

    def start_zookeeper(self, *, timeout_ms: int = START_TIMEOUT_MS) -> None:
        """Start the embedded ZooKeeper unless its process runs, and return when it serves.

        Raises LocalError after `timeout_ms`, or if the process ends or is suspended. A process that was running before
        is left alone then. For an external ZooKeeper only check that it accepts connections. Raises LocalError if it
        does not.
        """
        with self.locked():
            self.refresh()
            started: list[Process] = []
            try:
                self._start_zookeeper(started, lambda process, address: None, self._clock.monotonic_ms() + timeout_ms)
            except BaseException:
                _stop(started)
                raise

    def broker_process(self, broker_id: int) -> Process | None:
        """Return the process of the broker's last start by `state`, for signals; it may have ended by itself.

        None if the broker was stopped or never started. Raises LocalError for an unknown id.
        """
        return self.known_state().broker(broker_id).process

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the cluster during the block against other commands that start or stop it.

        Raises LocalError at once if another command has the lock. A data directory that does not exist is not locked.
        """
        try:
            descriptor = os.open(self.data_dir / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            yield  # no cluster was ever started there, so that no other command can interfere
            return
        except OSError as error:
            raise LocalError(f"cannot write to {self.data_dir}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise LocalError(
                f"another command is starting or stopping the cluster in {self.data_dir}: try again soon"
            ) from None
        finally:
            os.close(descriptor)

    def _stop(self) -> bool:
        state = self.refresh()
        if state is None:
            return False
        was_running = state.running
        _stop([process for broker in state.brokers if (process := broker.process)])
        if state.embedded is not None and (process := state.embedded.process):
            _stop([process])
        self._forget(process.pid for process in state.processes)
        return was_running

    def _remove(self) -> bool:
        state = self.refresh()
        if state is not None:
            for directory in (*map(self.broker_dir, (broker.broker_id for broker in state.brokers)), self.log_dir):
                shutil.rmtree(directory, ignore_errors=True)
            for name in ("config", "zookeeper"):
                shutil.rmtree(self.data_dir / name, ignore_errors=True)
        forget_last_up(self.data_dir, self.home)
        for name in (STATE_FILE, _LOCK_FILE):
            (self.data_dir / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.data_dir.rmdir()  # fails if the directory has other files, which must stay
        self.state = None
        return state is not None

    def _forget(self, pids: Iterable[int]) -> None:
        """Save that the processes with these pids were stopped on purpose. On a full disk the old file stays."""
        with contextlib.suppress(LocalError):
            self._save(_forget_processes(self.known_state(), set(pids)))

    def _save(self, state: ClusterState) -> None:
        self.state = self._noting_directories(state)
        with self._writing():
            save_state(self.data_dir, self.state)

    def _noting_directories(self, state: ClusterState) -> ClusterState:
        def note(broker: BrokerState) -> BrokerState:
            return replace(broker, had_directory=broker.had_directory or self.broker_dir(broker.broker_id).exists())

        return replace(state, brokers=tuple(map(note, state.brokers)))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn an OSError of a write, such as a full disk, into a LocalError."""
        try:
            yield
        except OSError as error:
            raise LocalError(
                f"cannot write to {self.data_dir}: {error.strerror}; free some space there, or pass another --data-dir"
            ) from None

    def _plan(
        self,
        brokers: int | None,
        zookeeper: str | None,
        settings: Mapping[str, str | int] | None,
        first_port: int,
        held: contextlib.ExitStack,
    ) -> ClusterState:
        """Return the state to start, without saving it: the known processes, and the new ones with their ports.

        The new ports are reserved until `held` is closed. Raises LocalError if the arguments do not fit the cluster.
        """
        state = self.state
        if state is None:
            embedded = None if zookeeper else ProcessState(choose_port(held), host=self._place(None).address)
            state = ClusterState(zookeeper or (str(embedded.endpoint) if embedded else ""), embedded, (), {})
        if zookeeper not in (None, state.zookeeper):
            raise LocalError(
                f"the cluster in {self.data_dir} uses ZooKeeper at {state.zookeeper}: pass another --data-dir"
            )
        target_count = brokers or len(state.brokers) or DEFAULT_BROKERS
        # A broker that never created its directory is planned again. A broker whose directory is missing stays, because
        # it is a member of the cluster, and the cluster may have its records on other brokers.
        state = self._noting_directories(state)
        state = replace(state, brokers=tuple(b for b in state.brokers if b.had_directory or b.running))
        if target_count < len(state.brokers):
            raise LocalError(
                f"the cluster in {self.data_dir} has {len(state.brokers)} brokers, and none can be removed:"
                " leave out --brokers, or pass another --data-dir"
            )
        taken = {port for broker in state.brokers for port in broker.ports}
        taken.update(process.port for process in state.processes)
        ids = {broker.broker_id for broker in state.brokers}
        free_ids = (broker_id for broker_id in itertools.count(1) if broker_id not in ids)
        for broker_id in itertools.islice(free_ids, target_count - len(ids)):
            port = choose_port(held, taken, preferred=first_port + broker_id - 1 if first_port else 0)
            replication_port = choose_port(held, taken | {port})
            taken |= {port, replication_port}
            host = self._place(broker_id).address
            planned = BrokerState(port, host=host, broker_id=broker_id, replication_port=replication_port)
            state = state.with_broker(planned)
        for broker in state.brokers:
            if not broker.http_port and not broker.running:
                http_port = choose_port(held, taken)
                taken.add(http_port)
                state = state.with_broker(replace(broker, http_port=http_port))
        return replace(state, settings={**state.settings, **(settings or {})})

    def _start_zookeeper(self, started: list[Process], on_ready: OnReady, deadline_ms: int) -> None:
        state = self.known_state()
        if state.embedded is None:
            require_zookeeper(state.zookeeper)
            return
        if state.embedded.running:
            self._wait_for_running_zookeeper(state.embedded, deadline_ms)
            return
        place = self._place(None)
        data_dir = place.data_dir or self.data_dir / "zookeeper"
        server = EmbeddedZooKeeper(data_dir, state.embedded.port, log_file=self.log_file(), place=place)
        with self._writing():
            process = server.launch()
        started.append(process)
        self._save(replace(state, embedded=replace(state.embedded, pid=process.pid, birth=process.birth)))
        server.wait_ready(deadline_ms - self._clock.monotonic_ms())
        on_ready("ZooKeeper", server.hosts)

    def _wait_for_running_zookeeper(self, server: ProcessState, deadline_ms: int) -> None:
        began_ms = self._clock.monotonic_ms()
        while not serves(server.endpoint):
            self._raise_if_suspended()
            if not server.running:
                raise LocalError(f"ZooKeeper (pid {server.pid}) ended before it served: see {self.log_file()}")
            now_ms = self._clock.monotonic_ms()
            if now_ms >= deadline_ms:
                raise LocalError(
                    f"ZooKeeper (pid {server.pid}) runs, but did not serve at {server.endpoint} within"
                    f" {format_duration(now_ms - began_ms)}: see {self.log_file()}"
                )
            time.sleep(0.02)

    def _launch_broker(self, broker_id: int) -> Process:
        self.refresh()
        return self._start_broker(self.known_state().broker(broker_id))

    def _start_broker(self, broker: BrokerState) -> Process:
        state = self.known_state()
        replicas = min(DEFAULT_BROKERS, len(state.brokers))
        settings: dict[str, str | int] = {
            "auto_create_topics_enable": True,
            "default_replication_factor": replicas,
            "offsets_topic_replication_factor": replicas,
            **state.settings,
        }
        if self.histories is not None:
            self.histories.mkdir(parents=True, exist_ok=True)
            settings["history_file"] = str(self.histories / f"{broker.broker_id}.jsonl")
        shared_names = setting_names(state.config)
        with self._writing():
            process = launch_broker(
                broker,
                zookeeper=state.zookeeper,
                data_dir=self.broker_dir(broker.broker_id),
                log_file=self.log_file(broker.broker_id),
                config=self.data_dir / "config" / f"broker-{broker.broker_id}.toml",
                shared=Path(state.config) if state.config else None,
                settings={name: value for name, value in settings.items() if name not in shared_names},
                place=self._place(broker.broker_id),
            )
        try:
            self._save(state.with_broker(replace(broker, pid=process.pid, birth=process.birth)))
        except BaseException:
            _stop([process])
            raise
        return process

    def _raise_if_suspended(self) -> None:
        suspended = self.known_state().suspended if self.state is not None else {}
        if not suspended:
            return
        which = ", ".join(f"{name} (pid {pid})" for name, pid in suspended.items())
        verb, them = ("is", "it") if len(suspended) == 1 else ("are", "them")
        pids = " ".join(map(str, suspended.values()))
        raise LocalError(
            f"{which} {verb} suspended by a signal (state T): resume {them} with kill -CONT {pids},"
            f" or stop the cluster with {down_command(self.data_dir, self.home)}"
        )

    def _wait_for_brokers(
        self,
        on_ready: OnReady,
        deadline_ms: int,
        *,
        only: int | None = None,
        on_wait: OnWait = lambda process, reason, waited_ms: None,
    ) -> None:
        # imported late, because commands that stop or describe a cluster do not need the protocol
        from tidelog.local.processes.liveness_probe import probe

        state = self.known_state()
        began_ms = self._clock.monotonic_ms()
        report_ms = began_ms + WAIT_REPORT_MS
        waited_for = {b.broker_id: b for b in state.brokers if only in (None, b.broker_id)}
        everyone = frozenset(waited_for)
        ready: set[int] = set()
        while True:
            seen = probe({broker_id: broker.endpoint for broker_id, broker in waited_for.items()})
            for broker_id, known in seen.items():
                if broker_id in known and broker_id not in ready:
                    ready.add(broker_id)
                    on_ready(f"broker {broker_id}", waited_for[broker_id].address)
            if all(known >= everyone for known in seen.values()):
                return
            for broker_id, broker in waited_for.items():
                if not broker.running:
                    raise LocalError(f"broker {broker_id} ended while it started: {self._last_error(broker_id)}")
            if only is None:
                self._raise_if_suspended()
            now_ms = self._clock.monotonic_ms()
            late = [broker for broker_id, broker in waited_for.items() if not seen[broker_id] >= everyone]
            if now_ms >= deadline_ms:
                raise LocalError(self._timeout_text(late[0], everyone - seen[late[0].broker_id], now_ms - began_ms))
            if now_ms >= report_ms:
                report_ms = now_ms + WAIT_REPORT_MS
                for broker in late:
                    reason = _why_late(broker, everyone - seen[broker.broker_id])
                    on_wait(f"broker {broker.broker_id} (pid {broker.pid})", reason, now_ms - began_ms)
            time.sleep(0.03)

    def _timeout_text(self, broker: BrokerState, unknown: Collection[int], waited_ms: int) -> str:
        return (
            f"gave up waiting for broker {broker.broker_id} (pid {broker.pid}) after {format_duration(waited_ms)}: "
            f"{_why_late(broker, unknown)}; its log ends with: {self._last_error(broker.broker_id)}"
        )

    def _place(self, broker_id: int | None) -> Placement:
        return self.places.get(ZOOKEEPER if broker_id is None else str(broker_id), DEFAULT_PLACEMENT)

    def _last_error(self, broker_id: int) -> str:
        """Return the last error that the process printed since its start, or that its log has if it printed nothing."""
        log = self.log_file(broker_id)
        printed = log.with_suffix(".out")
        line = last_error_line(printed) if printed.exists() and printed.stat().st_size else last_error_line(log)
        return f"{line} (see {log})"


def _why_late(broker: BrokerState, unknown: Collection[int]) -> str:
    """Return why `start` still waits for this broker: it is not ready, or does not know the brokers `unknown` yet."""
    if reason := why_not_ready(broker):
        return f"not ready: {reason}"
    return f"it does not know broker {', '.join(map(str, sorted(unknown)))} yet"


def _forget_processes(state: ClusterState, pids: Collection[int]) -> ClusterState:
    """Return the state without the pids of these processes, because they were stopped on purpose.

    Any other process that does not run has ended by itself, and keeps its pid.
    """

    def forget(each: P) -> P:
        return replace(each, pid=0, birth="") if each.pid in pids else each

    return replace(state, brokers=tuple(map(forget, state.brokers)), embedded=state.embedded and forget(state.embedded))


def _stop(processes: list[Process]) -> None:
    """Send SIGTERM to all processes at once, resume suspended ones, and wait until all have ended.

    A process that has not ended after STOP_TIMEOUT_MS is killed.
    """
    clock = SystemClock()
    for process in processes:
        process.signal(SIGTERM)
        if process.condition is Condition.SUSPENDED:
            process.signal(SIGCONT)  # a suspended process does not handle SIGTERM
    deadline_ms = clock.monotonic_ms() + STOP_TIMEOUT_MS
    for process in processes:
        if not process.wait(max(0, deadline_ms - clock.monotonic_ms())):
            process.signal(SIGKILL)
            process.wait(STOP_TIMEOUT_MS)
