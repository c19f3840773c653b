"""docker-compose.yml, Dockerfile and the settings beside them agree, and the brokers accept the settings."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from node.settings.broker_settings import BrokerSettings
from tidelog.model import Endpoint
from tidelog.protocol.listeners import BROKERS, CLIENTS
from tools.compose_check.engine import GRACE_S, SERVICES
from tools.compose_check.reading import read, tools
from tools.compose_check.scenario import HOST, NETWORK

ROOT = Path(__file__).parent.parent
COMPOSE = (ROOT / "docker-compose.yml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def settings_of(broker_id: int) -> BrokerSettings:
    return BrokerSettings.load(ROOT / "compose/cluster.toml", ROOT / f"compose/broker-{broker_id}.toml")


@pytest.mark.parametrize("broker_id", HOST)
def test_each_broker_is_found_from_the_host_and_from_the_network(broker_id: int) -> None:
    listeners = {listener.name: listener for listener in settings_of(broker_id).listener_endpoints}
    assert settings_of(broker_id).broker_id == broker_id
    assert listeners[CLIENTS].advertised == NETWORK[broker_id]
    assert listeners[BROKERS].advertised == Endpoint(f"broker-{broker_id}", 9601)
    outside = listeners["KAFKA_HOST"]
    assert outside.advertised == HOST[broker_id]
    assert f'ports: ["{outside.advertised}:{outside.bind.port}"]' in COMPOSE
    exposed = re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    assert exposed == ["9092 9601 9680"]
    files = f"[broker, --config, /etc/tidelog/cluster.toml, --config, /etc/tidelog/broker-{broker_id}.toml]"
    assert f"command: {files}" in COMPOSE


def test_compose_uses_the_data_volume_and_the_settings_ensemble() -> None:
    settings = settings_of(1)
    assert settings.log_dirs == ("/var/lib/tidelog",)
    assert "VOLUME /var/lib/tidelog\n" in DOCKERFILE
    hosts, _, _ = settings.zookeeper.partition("/")
    assert [host.partition(":")[0] for host in hosts.split(",")] == re.findall(r"hostname: (zookeeper-\d)", COMPOSE)


def test_the_health_check_asks_where_the_broker_is_watched() -> None:
    port = Endpoint.parse(settings_of(1).http_listener).port
    assert f"http://127.0.0.1:{port}/readyz" in DOCKERFILE


def test_image_has_the_wheels_files_and_runs_without_root() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    copied = set(re.findall(r"[\w./-]+", " ".join(re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE))))
    let_in = set(re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    described = project["project"]
    assert {*wheel, "pyproject.toml", described["readme"], *described["license-files"]} == copied == let_in
    assert "\nUSER tidelog\n" in DOCKERFILE
    assert " '.[cli,broker]' && " in DOCKERFILE, "ENTRYPOINT needs cli, and CMD broker"


@pytest.mark.skipif(not tools(), reason="no docker compose, docker-compose or podman-compose is installed")
def test_every_compose_that_is_here_reads_the_file_without_a_complaint() -> None:
    for tool in tools():
        config, complaint = read(tool)
        assert complaint == "", tool
        services = re.search(r"^services:\n((?: .*\n)+)", config, re.MULTILINE)
        assert services is not None, tool
        assert set(re.findall(r"^  ([\w-]+):", services[1], re.MULTILINE)) == set(SERVICES), tool


def test_compose_project_name_is_independent_of_the_directory() -> None:
    # The name is not set by `name:` in the file, because docker-compose 1 (Debian 12) refuses that.
    assert (ROOT / ".env").read_text().splitlines()[-1] == "COMPOSE_PROJECT_NAME=tidelog"
    assert not re.search(r"^name:", COMPOSE, re.MULTILINE)


def test_a_broker_has_the_time_to_stop_that_compose_check_gives_it() -> None:
    assert COMPOSE.split("x-broker:")[1].split("services:")[0].count(f"stop_grace_period: {GRACE_S}s\n") == 1
