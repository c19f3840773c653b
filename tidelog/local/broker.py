"""One broker process of a local cluster."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import tidelog
from tidelog.errors import LocalError
from tidelog.local.processes.ports import port_is_free
from tidelog.local.processes.process import Process
from tidelog.local.processes.process_placement import HERE, Place
from tidelog.local.state import BrokerState
from tidelog.model import Endpoint
from tidelog.protocol.listeners import BROKERS, CLIENTS, Listener


def launch_broker(
    broker: BrokerState,
    *,
    zookeeper: str,
    data_dir: Path,
    log_file: Path,
    config: Path,
    shared: Path | None,
    settings: Mapping[str, str | int],
    place: Place = HERE,
) -> Process:
    """Writes the broker's settings file and starts the process, without waiting for it; LocalError names a taken port.

    `settings` come on top of what the layout decides, under the names of the settings file. What the brokers have in
    common may stand in `shared`, which the broker reads for itself.
    """
    for port in broker.ports:
        if not place.prefix and not port_is_free(port):
            who = f"broker {broker.broker_id}"
            raise LocalError(f"port {port}, which {who} was given, is taken: stop what listens there (ss -ltnp)")
    ours: dict[str, str | int | list[str]] = {
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
    config.write_text(_toml({**ours, **settings}), encoding="utf-8")
    return Process.spawn(
        [*place.prefix, *broker_command(*([shared] if shared else []), config)],
        output=log_file.with_suffix(".out"),
        directory=config.parent,
        environment={**broker_environment(), **place.environment},
    )


def broker_command(*configs: Path) -> list[str]:
    """With Python's safe path, so that a folder `storage` or `node` where the user stands is not taken for ours."""
    return [sys.executable, "-P", "-m", "node", *(part for config in configs for part in ("--config", str(config)))]


def broker_environment() -> dict[str, str]:
    """This process's; where PYTHONPATH is set, our own packages come before whatever lies there."""
    environment = dict(os.environ)
    if theirs := environment.get("PYTHONPATH"):
        ours = str(Path(tidelog.__file__).resolve().parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join((ours, theirs))
    return environment


def _toml(settings: Mapping[str, str | int | list[str]]) -> str:
    # A JSON string, number or list is TOML's too, as long as its characters are not escaped in pairs.
    return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items())
