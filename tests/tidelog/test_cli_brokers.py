"""`tidelog brokers` shows racks if a broker has one."""

from __future__ import annotations

import json

import pytest

from tests.tidelog.test_cli_many_rows import not_shown, run
from tidelog.cli.cluster import brokers as brokers_module
from tidelog.client.admin.admin_results import ClusterDescription
from tidelog.model import Endpoint


class Admin:
    """Brokers 1, 2 and so on, of which broker 2 is the controller."""

    def __init__(self, racks: dict[int, str], count: int = 2) -> None:
        self._racks, self._count = racks, count

    def describe_cluster(self) -> ClusterDescription:
        brokers = {broker: Endpoint("h", broker) for broker in range(1, self._count + 1)}
        return ClusterDescription("id", 2, brokers, "Tidelog", self._racks)


def shown(monkeypatch: pytest.MonkeyPatch, admin: Admin, *arguments: str) -> str:
    result = run(monkeypatch, brokers_module, brokers_module.brokers, admin, *arguments)
    assert result.exit_code == 0
    return result.stdout


def test_rack_column_is_shown_if_a_broker_has_a_rack(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Admin({1: "zone a"})).splitlines() == [
        "BROKER  ADDRESS  CONTROLLER  RACK",
        "     1  h:1      no          zone a",
        "     2  h:2      yes         -",
    ]


def test_rack_column_is_left_out_without_racks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Admin({})).splitlines()[0] == "BROKER  ADDRESS  CONTROLLER"


def test_json_has_the_rack_of_each_broker_or_null(monkeypatch: pytest.MonkeyPatch) -> None:
    described = json.loads(shown(monkeypatch, Admin({1: "a"}), "--json"))
    assert described == {
        "cluster_id": "id",
        "kind": "Tidelog",
        "brokers": [
            {"id": 1, "host": "h", "port": 1, "rack": "a", "controller": False},
            {"id": 2, "host": "h", "port": 2, "rack": None, "controller": True},
        ],
    }


def test_many_brokers_are_summed_up_with_the_controller_first(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, brokers_module, brokers_module.brokers, Admin({}, 60))
    lines = result.stdout.splitlines()
    assert lines[0] == "60 brokers: 1 controller, 59 not controller"
    assert lines[2].split() == ["2", "h:2", "yes"]
    assert not_shown(60, "brokers") in result.stderr


def test_description_shows_racks_in_notebooks_only_if_there_are_any() -> None:
    assert [row.get("rack", "none") for row in Admin({1: "a"}).describe_cluster()._rows_()] == ["a", None]
    assert all("rack" not in row for row in Admin({}).describe_cluster()._rows_())
