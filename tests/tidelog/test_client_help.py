"""Test the settings of a client in `help` and in editors, and its `repr`."""

from __future__ import annotations

import inspect
import pydoc
from dataclasses import fields
from typing import Any

import pytest

import tidelog
import tidelog.aio
from tests.tidelog.clients import in_memory
from tests.tidelog.fake_cluster import FakeCluster
from tidelog import TopicPartition
from tidelog.client.settings import AdminSettings, ConsumerSettings, ProducerSettings

SETTINGS = {"Admin": AdminSettings, "Consumer": ConsumerSettings, "Producer": ProducerSettings}
CLIENTS = [getattr(package, name) for package in (tidelog, tidelog.aio) for name in SETTINGS]


@pytest.mark.parametrize("client", CLIENTS)
def test_signature_shows_each_setting_with_its_default(client: Any) -> None:
    shown = inspect.signature(client).parameters
    defaults = {each.name: each.default for each in fields(SETTINGS[client.__name__]) if each.init}
    del defaults["bootstrap"]
    topics = {"topics": inspect.Parameter.empty} if client.__name__ == "Consumer" else {}
    assert {name: each.default for name, each in shown.items()} == {**topics, "bootstrap_servers": None, **defaults}
    assert all(each.annotation is not inspect.Parameter.empty for each in shown.values())


@pytest.mark.parametrize("client", CLIENTS)
def test_help_shows_settings_and_nothing_private(client: Any) -> None:
    text = pydoc.render_doc(client, renderer=pydoc.plaintext)
    assert "request_timeout_ms: int = 30000" in text
    assert "**options" not in text
    assert " _" not in text.replace(" __", "")


def test_repr_of_a_producer_shows_brokers_client_id_and_closed() -> None:
    producer = in_memory(tidelog.Producer, FakeCluster(), bootstrap_servers=["a:1", "b:2"], client_id="bills")
    assert repr(producer) == "<tidelog.Producer bootstrap_servers='a:1,b:2' client_id='bills'>"
    producer.close()
    assert repr(producer) == "<tidelog.Producer bootstrap_servers='a:1,b:2' client_id='bills' closed>"


def test_repr_of_an_admin_shows_brokers_and_closed() -> None:
    admin = in_memory(tidelog.Admin, FakeCluster(), bootstrap_servers="a:1")
    assert repr(admin) == "<tidelog.Admin bootstrap_servers='a:1' client_id='tidelog'>"
    admin.close()
    assert repr(admin).endswith(" closed>")


async def test_repr_of_a_consumer_shows_group_and_assignment() -> None:
    async with in_memory(tidelog.aio.Consumer, FakeCluster(), bootstrap_servers="a:1", group_id="g") as consumer:
        begin = "<tidelog.aio.Consumer bootstrap_servers='a:1' client_id='tidelog' group_id='g' assignment="
        assert repr(consumer) == begin + "{}>"
        consumer.assign([TopicPartition("t", 1), TopicPartition("t", 0)])
        assert repr(consumer) == begin + "{t-0, t-1}>"
        consumer.assign([TopicPartition("t", number) for number in range(12)])
        assert repr(consumer) == begin + "{t-0, t-1, t-2, t-3, t-4, … (12 partitions)}>"
    assert repr(consumer) == begin + "{} closed>"
