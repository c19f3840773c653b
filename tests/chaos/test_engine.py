"""Test the container engine with a program that prints recorded output of podman."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from node.handlers.config_descriptions import describe_broker
from node.settings.broker_settings import BrokerSettings
from node.settings.dynamic_settings import DynamicSettings
from tidelog.errors import LocalError
from verify.chaos.targets.container_target import reachable, settings_of
from verify.chaos.targets.engine import find_engine, of_inspection

COMPOSE = Path(__file__).parents[2] / "compose"

BROKER = {
    "Id": "4f1e",
    "Name": "tidelog_broker-1_1",
    "State": {"Pid": os.getpid()},
    "Config": {"Hostname": "broker-1", "Labels": {"com.docker.compose.service": "broker-1"}},
    "NetworkSettings": {
        "Ports": {"9092/tcp": None, "9611/tcp": [{"HostIp": "127.0.0.1", "HostPort": "9611"}]},
        "Networks": {"tidelog_tidelog": {"IPAddress": "10.89.0.7", "Aliases": ["broker-1", "4f1e"]}},
    },
}
ZOOKEEPER = {
    "Id": "77aa",
    "Name": "/tidelog-zookeeper-1-1",
    "State": {"Pid": 0},
    "Config": {"Hostname": "77aa", "Labels": None},
    "NetworkSettings": {"Ports": {}, "Networks": {"tidelog": {"IPAddress": "10.89.0.2", "Aliases": ["zookeeper-1"]}}},
}


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the only engine, and return the file with its output of `ps`."""
    running = tmp_path / "running"
    running.write_text("4f1e\n77aa\n")
    for container in (BROKER, ZOOKEEPER):
        (tmp_path / f"{container['Id']}.json").write_text(json.dumps([container]))
    program = tmp_path / "podman"
    program.write_text(
        "#!/bin/sh\n"
        f"cd {tmp_path}\n"
        'case "$1" in ps) exec /bin/cat running;; inspect) exec /bin/cat "$4.json";; esac\n'
        "echo 'Error: no such thing' >&2; exit 125\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return running


def test_container_that_publishes_a_port_is_found(podman: Path) -> None:
    engine, found = find_engine([9611])
    assert engine.name == "podman"
    assert found[9611].id == "4f1e" and found[9611].address == "10.89.0.7"
    process = found[9611].process
    assert process is not None and process.running and process.pid == os.getpid()


def test_port_without_a_container_is_reported(podman: Path) -> None:
    with pytest.raises(LocalError, match="podman has no container that publishes port 9612"):
        find_engine([9611, 9612])


def test_engine_error_is_reported_in_its_words(podman: Path) -> None:
    engine, _ = find_engine([9611])
    with pytest.raises(LocalError, match="podman start: Error: no such thing"):
        engine.start("4f1e")


def test_missing_engine_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalError, match="neither docker nor podman is installed here"):
        find_engine([9611])


def test_stopped_container_has_no_process(podman: Path) -> None:
    assert of_inspection(ZOOKEEPER).process is None


def test_zookeeper_hosts_become_addresses_of_containers() -> None:
    containers = [of_inspection(BROKER), of_inspection(ZOOKEEPER)]
    assert reachable("zookeeper-1:2181, elsewhere:2182/tidelog", containers) == "10.89.0.2:2181,elsewhere:2182/tidelog"


def test_reported_settings_have_the_names_of_the_settings_file() -> None:
    described = describe_broker(
        DynamicSettings(BrokerSettings.load(COMPOSE / "cluster.toml", COMPOSE / "broker-1.toml"))
    )
    settings = settings_of({entry.name: entry for entry in described})
    assert settings["zookeeper"].endswith(":2181/tidelog")
    assert settings["http_listener"] == "0.0.0.0:9680"
    assert (settings["zookeeper_session_timeout_ms"], settings["replica_lag_time_max_ms"]) == ("6000", "30000")
