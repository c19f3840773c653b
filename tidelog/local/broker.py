"""One broker process of a local cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import tidelog
from tidelog.errors import LocalError
from tidelog.local.processes.ports import port_is_free
from tidelog.local.processes.process import Process
from tidelog.local.processes.process_placement import DEFAULT_PLACEMENT, Placement
from tidelog.local.state import BrokerState
from tidelog.model import Endpoint
from tidelog.protocol.listeners import BROKERS, CLIENTS, Listener

#: How long the check of a settings file may take. It reads the file and starts no broker.
_CHECK_S = 60


def launch_broker(
    broker: BrokerState,
    *,
    zookeeper: str,
    data_dir: Path,
    log_file: Path,
    config: Path,
    shared: Path | None,
    settings: Mapping[str, str | int],
    place: Placement = DEFAULT_PLACEMENT,
) -> Process:
    """Write the broker's settings file `config` and start its process; return without waiting until it serves.

    settings   written in addition to ids, ports and paths, which they override; named as in the settings file
    shared     a further file of settings, which the broker reads itself; None: no such file

    Raises LocalError if a port is in use (not checked if `place` has a prefix), and OSError if the files cannot be
    written or the process cannot be started.
    """
    for port in broker.ports:
        if not place.prefix and not port_is_free(port):
            name = f"broker {broker.broker_id}"
            raise LocalError(f"port {port} of {name} is in use: stop the process that listens there (ss -ltnp)")
    layout: dict[str, str | int | list[str]] = {
        "broker_id": broker.broker_id,
        "log_dirs": [str(data_dir)],
        "zookeeper": zookeeper,
        "listeners": [
            str(Listener(CLIENTS, broker.endpoint)),
            str(Listener(BROKERS, Endpoint(broker.host, broker.replication_port))),
        ],
        "http_listener": str(Endpoint(broker.host, broker.http_port)),
        "log_file": str(log_file),
    }
    config.parent.mkdir(exist_ok=True)
    log_file.parent.mkdir(exist_ok=True)
    config.write_text(_toml({**layout, **settings}), encoding="utf-8")
    return Process.spawn(
        [*place.prefix, *broker_command(*([shared] if shared else []), config)],
        output=log_file.with_suffix(".out"),
        directory=config.parent,
        environment={**broker_environment(), **place.environment},
    )


def check_settings(shared: Path) -> None:
    """Raise LocalError if a broker could not read its settings from this file beside its own, or the check hangs.

    Brokers check their settings too, but only after ZooKeeper has started.
    """
    layout: dict[str, str | int | list[str]] = {"broker_id": 1, "log_dirs": ["/"], "zookeeper": "localhost:1"}
    with tempfile.TemporaryDirectory() as directory:
        own = Path(directory) / "broker.toml"
        own.write_text(_toml(layout), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "node.settings", str(shared), str(own)]
        try:
            checked = subprocess.run(
                command, env=broker_environment(), stderr=subprocess.PIPE, text=True, timeout=_CHECK_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise LocalError(f"the settings in {shared} were not checked within {_CHECK_S} s; try again") from None
    if checked.returncode:
        raise LocalError(checked.stderr.strip().rpartition("\n")[2])


def broker_command(*configs: Path) -> list[str]:
    """Return the command line that runs a broker with these settings files.

    Python's safe path (-P) ignores folders `storage` or `node` in the working directory.
    """
    return [sys.executable, "-P", "-m", "node", *(part for config in configs for part in ("--config", str(config)))]


def broker_environment() -> dict[str, str]:
    """Return the environment for a broker: a copy of this process's.

    If PYTHONPATH is set, the directory of the package `tidelog` is put first in it.
    """
    environment = dict(os.environ)
    if path := environment.get("PYTHONPATH"):
        packages = str(Path(tidelog.__file__).resolve().parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join((packages, path))
    return environment


def _toml(settings: Mapping[str, str | int | list[str]]) -> str:
    # A JSON string, number or list is valid TOML too, unless characters are escaped as surrogate pairs.
    return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items())
