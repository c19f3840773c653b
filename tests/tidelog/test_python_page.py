"""Compare the tables of docs/PYTHON.md with the packages that they name, and with Tidelog."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

import tidelog
from tidelog.client.settings import AdminSettings, ConsumerSettings, ProducerSettings, setting_fields

PAGE = Path(__file__).parents[2] / "docs" / "PYTHON.md"


@dataclass(frozen=True)
class Client:
    """One kind of client: Tidelog's classes and settings, and the classes whose names the tables have."""

    ours: Any
    aio: Any
    settings: Any
    kafka_python: Any
    confluent: Any

    @property
    def setting_names(self) -> set[str]:
        return {"bootstrap_servers", *(each.name for each in setting_fields(self.settings))}


CLIENTS = {
    "Producer": Client(
        tidelog.Producer, tidelog.aio.Producer, ProducerSettings, kafka.KafkaProducer, confluent_kafka.Producer
    ),
    "Consumer": Client(
        tidelog.Consumer, tidelog.aio.Consumer, ConsumerSettings, kafka.KafkaConsumer, confluent_kafka.Consumer
    ),
    "Admin": Client(
        tidelog.Admin, tidelog.aio.Admin, AdminSettings, kafka.KafkaAdminClient, confluent_kafka.admin.AdminClient
    ),
}
METHODS = ["kafka-python", "confluent-kafka", "Tidelog", "remark"]
SETTINGS = ["kafka-python", "Tidelog", "remark"]


def section(*titles: str) -> str:
    """Return the text below these headings, each within the one before."""
    text = PAGE.read_text()
    for level, title in enumerate(titles, 2):
        (text,) = re.findall(rf"^{'#' * level} {re.escape(title)}\n(.*?)(?=^#{{2,{level}}} |\Z)", text, re.M | re.S)
    return str(text)


def rows(text: str, heads: list[str]) -> list[list[str]]:
    """Return the cells of the table's rows."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert table[0] == heads and all(len(row) == len(heads) for row in table)
    return table[2:]


def names(cells: list[str]) -> list[str]:
    return [name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)]


def public(kind: Any) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("package", ["kafka-python", "confluent-kafka"])
def test_table_has_each_public_name_of_the_package(kind: str, package: str) -> None:
    column = METHODS.index(package)
    client = CLIENTS[kind]
    expected = public(client.confluent if column else client.kafka_python)
    assert set(names([row[column] for row in rows(section(kind, "Methods"), METHODS)])) == expected


@pytest.mark.parametrize("kind", CLIENTS)
def test_tables_have_each_setting_of_kafka_python(kind: str) -> None:
    own = [] if kind == "Admin" else rows(section(kind, "Settings"), SETTINGS)
    common = rows(section("Settings of all clients"), SETTINGS)
    listed = names([row[0] for row in own + common])
    assert set(CLIENTS[kind].kafka_python.DEFAULT_CONFIG) <= set(listed)
    every = {name for client in CLIENTS.values() for name in client.kafka_python.DEFAULT_CONFIG}
    assert set(names([row[0] for row in own])) <= set(CLIENTS[kind].kafka_python.DEFAULT_CONFIG)
    assert set(listed) <= every and len(set(listed)) == len(listed)


def missing_names(kind: str, cells: list[str]) -> set[str]:
    """Return the names that Tidelog has neither as an attribute nor as a setting."""
    missing = set()
    for name in names(cells):
        owner, _, attribute = name.rpartition(".")
        client = CLIENTS[owner or kind]
        if attribute not in public(client.ours) | client.setting_names:
            missing.add(name)
    return missing


@pytest.mark.parametrize("kind", CLIENTS)
def test_each_name_of_ours_in_the_tables_exists(kind: str) -> None:
    cells = [row[2] for row in rows(section(kind, "Methods"), METHODS)]
    cells += [] if kind == "Admin" else [row[1] for row in rows(section(kind, "Settings"), SETTINGS)]
    cells += [row[1] for row in rows(section("Settings of all clients"), SETTINGS)]
    of_help = {f"help({kind})"}
    assert missing_names(kind, cells) <= of_help


@pytest.mark.parametrize("kind", CLIENTS)
def test_each_row_says_what_replaces_the_name(kind: str) -> None:
    for *_, ours, remark in rows(section(kind, "Methods"), METHODS):
        assert names([ours]) or re.match("not yet|not needed: ", ours), (ours, remark)


@pytest.mark.parametrize("kind", CLIENTS)
def test_clients_for_asyncio_have_the_methods_of_the_tables(kind: str) -> None:
    client = CLIENTS[kind]
    assert public(client.ours) - public(client.aio) <= {"commit_async"}


def test_a_name_that_does_not_exist_is_found() -> None:
    assert missing_names("Consumer", ["`poll`, `Admin.nonsense`, `polll`, `group_id`"]) == {"Admin.nonsense", "polll"}
