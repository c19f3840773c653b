"""A settings file is either complete and valid, or refused with its name and the name of the setting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from node.kafka.listener import ListenerLimits
from node.process.broker import listener_limits
from node.settings.broker_settings import BrokerSettings
from storage.configs.log_config import LogConfig
from tidelog.errors import ConfigError

GOOD = 'broker_id = 1\nlog_dirs = "d"\nzookeeper = "h:1,g:2/root"\n'


def test_minimal_settings_file_gets_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(GOOD + "num_partitions = 7\n")
    settings = BrokerSettings.load(tmp_path / "b.toml")
    assert (settings.broker_id, settings.num_partitions, settings.log_level) == (1, 7, "INFO")
    assert [str(endpoint) for endpoint in settings.listener_endpoints] == [
        "KAFKA://127.0.0.1:9092",
        "REPLICATION://127.0.0.1:9601",
    ]
    assert settings.zookeeper_session_timeout_ms == 6000


@pytest.mark.parametrize(
    ("text", "log_dirs"),
    [('"a"', ("a",)), ('"a, b,"', ("a", "b")), ('["a, b", "c"]', ("a, b", "c"))],
)
def test_log_dirs_are_a_list_or_names_with_commas(tmp_path: Path, text: str, log_dirs: tuple[str, ...]) -> None:
    (tmp_path / "b.toml").write_text(GOOD.replace('log_dirs = "d"', f"log_dirs = {text}"))
    assert BrokerSettings.load(tmp_path / "b.toml").log_dirs == log_dirs


def test_http_listener_needs_an_address(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(GOOD + 'http_listener = "9680"\n')
    with pytest.raises(ConfigError, match="http_listener: '9680' is not host:port"):
        BrokerSettings.load(tmp_path / "b.toml")


def test_topics_take_their_defaults_from_the_brokers_settings(tmp_path: Path) -> None:
    text = (
        'log_retention_hours = 3\nlog_cleanup_policy = ["compact", "delete"]\nunclean_leader_election_enable = true\n'
    )
    (tmp_path / "b.toml").write_text(GOOD + text + "min_insync_replicas = 2\nlog_cleaner_min_cleanable_ratio = 0.1\n")
    defaults = BrokerSettings.load(tmp_path / "b.toml").topic_defaults
    assert (defaults.retention_ms, defaults.min_insync_replicas) == (3 * 3_600_000, 2)
    assert defaults.cleanup_policy == {"compact", "delete"}
    assert defaults.unclean_leader_election_enable is True
    assert defaults.min_cleanable_dirty_ratio == 0.1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GOOD + "prot = 1\n", "no such setting: prot"),
        (GOOD + "log_retention_hour = 1\n", "no such setting: log_retention_hour (did you mean log_retention_hours?)"),
        (GOOD + "retention_ms = 1\n", "no such setting: retention_ms (did you mean log_retention_ms?)"),
        (GOOD + "log.retention.ms = 1\n", "no such setting: log.retention.ms (did you mean log_retention_ms?)"),
        (GOOD + "[listeners]\nKAFKA = 'h:1'\n", "no such setting: listeners.KAFKA (did you mean listeners?)"),
        ('log_dirs = "d"\nzookeeper = "h:1"\n', "missing: broker_id"),
        (GOOD + 'num_partitions = "7"\n', "num_partitions must be a whole number"),
        (GOOD + "num_partitions = 0\n", "num_partitions must be between 1 and 100000"),
        (GOOD + "num_partitions = true\n", "num_partitions must be a whole number"),
        (GOOD + "listeners = 'KAFKA://127.0.0.1:1'\n", "listeners must have REPLICATION://"),
        (GOOD + "log_cleaner_enable = 1\n", "log_cleaner_enable must be true or false"),
        (GOOD.replace('"d"', '""'), "log_dirs must name at least one directory"),
        (GOOD.replace('"d"', "[1]"), "log_dirs must be a list of strings that are not empty"),
        (GOOD.replace('"d"', '["d", "\\u0000"]'), "log_dirs must not contain the character NUL (0)"),
        (GOOD + 'log_file = "\\u0000"\n', "log_file must not contain the character NUL (0)"),
        (GOOD.replace('"d"', "3"), "log_dirs must be a list of strings, or one string with commas"),
        (GOOD + "log_retention_hours = 'soon'\n", "log_retention_hours=soon"),
        (
            GOOD + "log_cleaner_min_compaction_lag_ms = 2\nlog_cleaner_max_compaction_lag_ms = 1\n",
            "log_cleaner_min_compaction_lag_ms=2 is more than log_cleaner_max_compaction_lag_ms=1",
        ),
        (GOOD + "topic_defaults = 3\n", "no such setting: topic_defaults"),
        (GOOD + 'log_level = "LOUD"\n', "log_level must be"),
        (GOOD.replace("h:1,", "h,"), "zookeeper: 'h' is not host:port"),
        (GOOD.replace("2/root", "2/a/../b"), "zookeeper: the path /a/../b must not contain . or .."),
        (GOOD + f'broker_rack = "{"r" * 250}"\n', "broker_rack must be at most 249 printable characters"),
        (GOOD + 'broker_rack = " a"\n', "broker_rack must be at most 249 printable characters without spaces"),
        (GOOD + 'broker_rack = "a\\tb"\n', "broker_rack must be at most 249 printable characters"),
        (GOOD + "broker_rack = 1\n", "broker_rack must be a string"),
        ("broker_id = \n", "is not TOML"),
    ],
)
def test_invalid_setting_is_refused_by_its_name(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "b.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"b\.toml") as raised:
        BrokerSettings.load(path)
    assert complaint in str(raised.value)


def test_rack_is_any_printable_name_or_none(tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    for line, rack in (("", ""), ('broker_rack = ""\n', ""), ('broker_rack = "zone a, räck 1"\n', "zone a, räck 1")):
        path.write_text(GOOD + line)
        assert BrokerSettings.load(path).broker_rack == rack
    path.write_text(GOOD + f'broker_rack = "{"r" * 249}"\n')
    assert len(BrokerSettings.load(path).broker_rack) == 249


def test_missing_settings_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml"):
        BrokerSettings.load(tmp_path / "none.toml")


def test_settings_may_be_spread_over_several_files(tmp_path: Path) -> None:
    common, own = tmp_path / "cluster.toml", tmp_path / "broker-1.toml"
    common.write_text('zookeeper = "h:1"\nlog_dirs = "d"\nnum_partitions = 6\n')
    own.write_text('broker_id = 1\nlisteners = "KAFKA://127.0.0.1:1, REPLICATION://127.0.0.1:2"\n')
    settings = BrokerSettings.load(common, own)
    assert (settings.broker_id, settings.num_partitions, len(settings.listener_endpoints)) == (1, 6, 2)
    own.write_text("broker_id = 1\nnum_partitions = 6\n")
    with pytest.raises(ConfigError, match=r"broker-1\.toml:2: num_partitions is already set at .*cluster\.toml:3"):
        BrokerSettings.load(common, own)
    own.write_text("nun_partitions = 6\n")
    with pytest.raises(ConfigError, match=r"broker-1\.toml:1: no such setting: nun_partitions .*num_partitions"):
        BrokerSettings.load(common, own)
    own.write_text("")
    with pytest.raises(ConfigError, match=r"cluster\.toml, .*broker-1\.toml: missing: broker_id"):
        BrokerSettings.load(common, own)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("# first\n\nprot = 1\n", 3),
        ("num_partitions = 0\n", 1),
        ("log_dirs = [\n  'd',\n  1,\n]\n", 1),
        ("num_partitions = 3\nlog_file = '''\n\nnum_partitions = 0\n'''\nlog_level = 'LOUD'\n", 6),
        ("num_partitions = 3\n\n[listeners]\nKAFKA = 'h:1'\n", 4),
        ("log_level = 'INFO'\n'log.retention.ms' = 1\n", 2),
        ("log_level = 'INFO'\nlog_retention_hours = 'soon'\n", 2),
        ("\nlog_cleaner_min_compaction_lag_ms = 2\nlog_cleaner_max_compaction_lag_ms = 1\n", 2),
        ("http_listener = ''\nlisteners = 'KAFKA://127.0.0.1:1'\n", 2),
    ],
)
def test_error_names_the_file_and_the_line(tmp_path: Path, text: str, place: int) -> None:
    path, required = tmp_path / "b.toml", tmp_path / "c.toml"
    path.write_text(text)
    required.write_text("".join(line for line in GOOD.splitlines(True) if line.split()[0] not in text))
    with pytest.raises(ConfigError) as raised:
        BrokerSettings.load(required, path)
    assert str(raised.value).startswith(f"{path}:{place}: ")


def test_replaced_settings_keep_all_others_wherever_these_come_from(tmp_path: Path) -> None:
    """Settings that a program has made, as the simulator does, have defaults of topics that no file gives."""
    made = BrokerSettings(
        broker_id=1,
        log_dirs=("d",),
        zookeeper="h:1",
        topic_defaults=LogConfig.from_topic_configs({"min.insync.replicas": "2", "retention.ms": "7"}),
    )
    assert made.replaced({}) == made
    changed = made.replaced({"log.retention.ms": "9", "max.connections": "5"})
    assert (changed.topic_defaults.retention_ms, changed.topic_defaults.min_insync_replicas) == (9, 2)
    assert changed == replace(made, max_connections=5, topic_defaults=replace(made.topic_defaults, retention_ms=9))
    file = tmp_path / "broker.toml"
    file.write_text(GOOD + "log_retention_hours = 3\nmin_insync_replicas = 2\n")
    loaded = BrokerSettings.load(file)
    assert loaded.replaced({}) == loaded
    assert loaded.topic_defaults.retention_ms == 3 * 3_600_000
    assert loaded.replaced({"log.retention.ms": "9"}).topic_defaults == replace(loaded.topic_defaults, retention_ms=9)


def test_each_limit_of_a_kafka_listener_is_the_setting_with_that_meaning(tmp_path: Path) -> None:
    text = (
        "max_connections = 11\nmax_connections_per_ip = 12\nconnections_max_idle_ms = 10013\n"
        "socket_request_max_bytes = 2000014\nqueued_max_request_bytes = 30000015\n"
    )
    (tmp_path / "b.toml").write_text(GOOD + text)
    assert listener_limits(BrokerSettings.load(tmp_path / "b.toml"), 10) == ListenerLimits(
        max_connections_of_process=10,
        max_connections=11,
        max_connections_per_ip=12,
        max_idle_ms=10_013,
        max_frame_bytes=2_000_014,
        max_memory_bytes=30_000_015,
    )
