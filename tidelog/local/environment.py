"""Checks whether this machine can run a local cluster, and how the cluster's processes are doing."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from tidelog.client.diagnosis.doctor_checks import Check, State, examine_disk, examine_file_limit
from tidelog.errors import ClientError, LocalError, MissingExtraError
from tidelog.extras import require
from tidelog.local.java import OLDEST_JAVA, find_java
from tidelog.local.processes.ports import port_is_free
from tidelog.local.processes.process import Condition
from tidelog.local.state import ClusterState, ProcessState
from tidelog.local.zookeeper import find_jars, require_zookeeper, serves
from tidelog.protocol.operator_messages import LogDirectoryReport


def examine_environment(data_dir: Path, state: ClusterState | None) -> list[Check]:
    """Check what `tidelog up` needs on this machine, and the cluster's processes; return the results in order.

    `state` is None before the first start. Without an embedded ZooKeeper, Java and its jars are not checked.
    """
    checks = [_packages()]
    if state is None or state.embedded is not None:
        checks += [_java(), _jars()]
    checks.append(_disk(data_dir))
    checks.append(examine_file_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    if state is None:
        checks.append(Check("cluster", State.WARNING, f"there is none in {data_dir} yet", "tidelog up starts one"))
    else:
        checks += [_ports(state), *_processes(state)]
        if "ZooKeeper" not in state.suspended:
            checks.append(_zookeeper(state))
        if not any(broker.running for broker in state.brokers):
            checks.append(Check("brokers", State.FAILURE, f"none of {len(state.brokers)} is running", "tidelog up"))
    return checks


def _packages() -> Check:
    try:
        require("local", "a local cluster")
    except MissingExtraError as error:
        return Check("packages", State.FAILURE, *_split(error))
    return Check("packages", State.OK, "the packages of a broker are installed")


def _java() -> Check:
    try:
        return Check("Java", State.OK, f"{find_java()}, {OLDEST_JAVA} or newer")
    except LocalError as error:
        return Check("Java", State.FAILURE, *_split(error))


def _jars() -> Check:
    try:
        jars = find_jars()
    except LocalError as error:
        return Check("ZooKeeper's jars", State.FAILURE, *_split(error))
    return Check("ZooKeeper's jars", State.OK, str(jars[0]))


def _disk(data_dir: Path) -> Check:
    directory = data_dir
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    if not os.access(directory, os.W_OK | os.X_OK):
        return Check("data directory", State.FAILURE, f"{directory} is not writable", "pass another --data-dir")
    found = os.statvfs(directory)
    block = found.f_frsize
    report = LogDirectoryReport(
        str(data_dir), "", found.f_blocks * block, found.f_bavail * block, found.f_files, found.f_favail
    )
    return examine_disk("data directory", report)


def _ports(state: ClusterState) -> Check:
    """Check that the ports of all processes that do not run are free for the next start."""
    taken = [port for process in state.processes if not process.running for port in _taken(process)]
    if taken:
        listed = ", ".join(map(str, taken))
        return Check(
            "ports", State.FAILURE, f"{listed}: used by other processes", "stop these processes (ss -ltnp shows them)"
        )
    count = sum(len(process.ports) for process in state.processes)
    return Check("ports", State.OK, f"{count}, none used by other processes")


def _processes(state: ClusterState) -> Iterator[Check]:
    """Yield a failure for each suspended process, and a warning for each broker that is blocked on a device."""
    for name, pid in state.suspended.items():
        sentence = f"pid {pid} is suspended by a signal (state T)"
        yield Check(f"{name}, process", State.FAILURE, sentence, f"kill -CONT {pid} resumes it; tidelog down stops it")
    for broker in state.brokers:
        if broker.condition is Condition.BLOCKED:
            sentence = f"pid {broker.pid} is blocked on a device (state D)"
            advice = "check again; if it stays blocked, look for disk errors in the kernel's log"
            yield Check(f"broker {broker.broker_id}, process", State.WARNING, sentence, advice)


def _taken(process: ProcessState) -> Iterator[int]:
    for port in process.ports:
        try:
            if not port_is_free(port):
                yield port
        except LocalError:
            yield port


def _zookeeper(state: ClusterState) -> Check:
    if state.embedded is None:
        try:
            require_zookeeper(state.zookeeper)
        except LocalError as error:
            return Check("ZooKeeper", State.FAILURE, *_split(error))
        return Check("ZooKeeper", State.OK, f"{state.zookeeper} answers")
    if serves(state.embedded.endpoint):
        return Check("ZooKeeper", State.OK, f"{state.zookeeper} serves")
    running = "runs, but does not serve" if state.embedded.running else "does not run"
    return Check("ZooKeeper", State.FAILURE, f"{state.zookeeper} {running}", "tidelog up; tidelog logs zookeeper")


def _split(error: ClientError) -> tuple[str, str]:
    """Split the error into its problem and its advice, which is the text after the first colon, or ""."""
    wrong, _, advice = str(error).partition(": ")
    return wrong, advice
