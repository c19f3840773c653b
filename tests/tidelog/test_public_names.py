from __future__ import annotations

import subprocess
import sys

import pytest

import tidelog


@pytest.mark.parametrize("name", tidelog.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(tidelog, name) is not None
    assert name in dir(tidelog)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Prodcuer'"):
        _ = tidelog.Prodcuer


def test_looking_at_processes_loads_no_client() -> None:
    heavy = ("zmq", "msgpack", "uvloop", "kazoo", "pyspark", "rich", "tidelog.client.cluster_client")
    program = (
        "import sys, tidelog.cli.cluster.up, tidelog.cli.cluster.cluster; "
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("use", "needless"),
    [
        (
            "from tidelog import Producer; Producer",
            ("tidelog.groups", "tidelog.protocol.group_messages", "tidelog.client.consumer.fetching.fetcher"),
        ),
        (
            "from tidelog import Consumer; Consumer",
            ("tidelog.groups.membership.group_consumer", "tidelog.protocol.group_messages"),
        ),
    ],
)
def test_consumer_without_a_group_loads_no_group_modules(use: str, needless: tuple[str, ...]) -> None:
    program = f"import sys; {use}; print([m for m in {needless} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert shown.stdout.strip() == "[]"
