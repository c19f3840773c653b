"""A settings file is either whole and right, or refused with its name and the key's."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.settings import BrokerSettings
from tidelog.errors import ConfigError

GOOD = 'broker_id = 1\nlog_dirs = "d"\nzookeeper = "h:1,g:2/root"\n'


def test_a_short_file_gets_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(GOOD + "port = 9600\n")
    settings = BrokerSettings.load(tmp_path / "b.toml")
    assert (settings.broker_id, settings.port, settings.host) == (1, 9600, "127.0.0.1")
    assert settings.zookeeper_session_timeout_ms == 6000


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GOOD + "prot = 1\n", "no such setting: prot"),
        ('log_dirs = "d"\nzookeeper = "h:1"\n', "missing: broker_id"),
        (GOOD + 'port = "9600"\n', "port must be a whole number"),
        (GOOD + "port = 70000\n", "port must be between 0 and 65535"),
        (GOOD + "port = true\n", "port must be a whole number"),
        (GOOD + 'log_level = "LOUD"\n', "log_level must be"),
        (GOOD.replace("h:1,", "h,"), "zookeeper: 'h' is not host:port"),
        ("broker_id = \n", "is not TOML"),
        (GOOD + "host = \n", "is not TOML"),
    ],
)
def test_anything_else_is_refused_by_name(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "b.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"b\.toml") as raised:
        BrokerSettings.load(path)
    assert complaint in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml"):
        BrokerSettings.load(tmp_path / "none.toml")
