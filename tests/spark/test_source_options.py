from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from tidelog.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from tidelog.errors import ConfigError, LocalError
from tidelog.model import TopicPartition
from tidelog.spark.options import CLIENT_OPTIONS, Use, parse_read, parse_write, wants_headers
from tidelog.spark.values import Assign, AtOffsets, AtTime, AtTimes, Subscribe, SubscribePattern, duration_ms

SERVERS = {"tidelog.bootstrap.servers": "a:9092,b:9093"}
READ = SERVERS | {"subscribe": "t"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_batch_read_defaults_to_earliest_and_latest() -> None:
    options = parse_read(READ, Use.BATCH_READ)
    assert (options.starting, options.ending) == ("earliest", "latest")
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_stream_starts_at_latest_by_default() -> None:
    assert parse_read(READ, Use.STREAM_READ).starting == "latest"


@pytest.mark.parametrize(("use", "client"), [(Use.BATCH_READ, ConsumerSettings), (Use.WRITE, ProducerSettings)])
def test_each_client_option_is_a_setting_of_that_client(use: Use, client: type[ClientSettings]) -> None:
    names = [name for name, (uses, _) in CLIENT_OPTIONS.items() if use in uses]
    settings = {f"tidelog.{field.name.replace('_', '.')}" for field in fields(client)}
    assert set(names) - settings == set()
    assert "tidelog.bootstrap.timeout.ms" in names


def test_kafka_bootstrap_servers_is_accepted() -> None:
    assert parse_write({"kafka.bootstrap.servers": "a:1"}).bootstrap_servers == "a:1"
    with pytest.raises(ConfigError, match="differ"):
        parse_write({"kafka.bootstrap.servers": "a:1", "tidelog.bootstrap.servers": "b:1"})


@pytest.mark.parametrize(
    ("option", "subscription"),
    [
        ({"subscribe": "t, u,t"}, Subscribe(("t", "u"))),
        ({"subscribePattern": "t.*"}, SubscribePattern("t.*")),
        ({"assign": '{"t": [1, 0]}'}, Assign((T0, T1))),
    ],
)
def test_three_options_select_partitions(option: dict[str, str], subscription: object) -> None:
    assert parse_read(SERVERS | option, Use.BATCH_READ).subscription == subscription


@pytest.mark.parametrize("options", [{}, {"subscribe": "t", "assign": '{"t": [0]}'}])
def test_exactly_one_selection_option_is_needed(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="exactly one of subscribe, subscribePattern and assign"):
        parse_read(SERVERS | options, Use.BATCH_READ)


def test_timestamp_overrides_partition_times_and_offsets() -> None:
    offsets = {"startingOffsets": '{"t": {"0": -2, "1": 7}}'}
    times = {"startingOffsetsByTimestamp": '{"t": {"0": 1000, "1": 2000}}'}
    assert parse_read(READ | offsets, Use.STREAM_READ).starting == AtOffsets({T0: -2, T1: 7})
    assert parse_read(READ | offsets | times, Use.STREAM_READ).starting == AtTimes({T0: 1000, T1: 2000})
    everything = READ | offsets | times | {"startingTimestamp": "3000"}
    assert parse_read(everything, Use.STREAM_READ).starting == AtTime(3000)


def test_the_end_has_the_same_precedence() -> None:
    offsets = {"endingOffsets": '{"t": {"0": -1}}'}
    times = {"endingOffsetsByTimestamp": '{"t": {"0": 1000}}'}
    assert parse_read(READ | offsets, Use.BATCH_READ).ending == AtOffsets({T0: -1})
    assert parse_read(READ | offsets | times, Use.BATCH_READ).ending == AtTimes({T0: 1000})
    assert parse_read(READ | offsets | times | {"endingTimestamp": "5"}, Use.BATCH_READ).ending == AtTime(5)


@pytest.mark.parametrize(
    ("option", "use", "complaint"),
    [
        ({"startingOfsets": "earliest"}, Use.BATCH_READ, "did you mean startingOffsets"),
        ({"zzz": "1"}, Use.BATCH_READ, "unknown option 'zzz'.*the nearest are "),
        ({"tidelog.acks": "all"}, Use.BATCH_READ, "tidelog.acks is for a write, not for a batch read"),
        ({"tidelog.nonsense.ms": "1"}, Use.BATCH_READ, "unknown option 'tidelog.nonsense.ms'"),
        ({"endingTimestamp": "1"}, Use.STREAM_READ, "endingTimestamp is for a batch read, not for a stream read"),
        ({"maxOffsetsPerTrigger": "9"}, Use.BATCH_READ, "maxOffsetsPerTrigger is for a stream read"),
        ({"maxOffsetsPerTrigger": "0"}, Use.STREAM_READ, "maxOffsetsPerTrigger: '0' must be at least 1"),
        ({"maxOffsetsPerTrigger": "many"}, Use.STREAM_READ, "'many' must be a whole number"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, Use.STREAM_READ, "5 is more than"),
        ({"startingTimestamp": "-5"}, Use.STREAM_READ, "must not be negative"),
        ({"startingOffsets": "latest"}, Use.BATCH_READ, "cannot start at latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, Use.BATCH_READ, "cannot start at latest"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, Use.STREAM_READ, "t-0 has -3"),
        ({"startingOffsets": '{"t": 5}'}, Use.STREAM_READ, "startingOffsets.*expected"),
        ({"startingOffsets": "erliest"}, Use.STREAM_READ, "startingOffsets.*not JSON"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, Use.STREAM_READ, "must not be negative"),
        ({"startingOffsetsByTimestampStrategy": "skip"}, Use.STREAM_READ, "must be error or latest"),
        ({"endingOffsets": "earliest"}, Use.BATCH_READ, "cannot end at earliest"),
        ({"failOnDataLoss": "no"}, Use.BATCH_READ, "failOnDataLoss: 'no' must be true or false"),
        ({"maxTriggerDelay": "soon"}, Use.STREAM_READ, "a number and a unit"),
        ({"path": "/t"}, Use.BATCH_READ, "takes no path"),
        ({"tidelog.bootstrap.servers": "nowhere"}, Use.BATCH_READ, "'nowhere' is not host:port"),
        ({"tidelog.bootstrap.servers": " , "}, Use.BATCH_READ, "is empty"),
        ({"subscribe": "a/b"}, Use.BATCH_READ, "only ASCII letters"),
        ({"subscribe": " , "}, Use.BATCH_READ, "names no topic"),
    ],
)
def test_wrong_option_is_named_with_advice(option: dict[str, str], use: Use, complaint: str) -> None:
    given = {name.lower(): value for name, value in (READ | option).items()}
    with pytest.raises(ConfigError, match=complaint):
        parse_read(given, use)


@pytest.mark.parametrize(
    "option",
    [{"assign": '{"t": [-1]}'}, {"assign": '{"t": []}'}, {"assign": "[]"}, {"assign": "{"}, {"subscribePattern": "("}],
)
def test_a_malformed_assignment_or_pattern_is_named(option: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(option))):
        parse_read(SERVERS | option, Use.BATCH_READ)


def test_servers_are_found_as_commands_find_them_without_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path))
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", "a:1,b:2")
    assert parse_read({"subscribe": "t"}, Use.BATCH_READ).bootstrap_servers == "a:1,b:2"
    assert parse_write({}).bootstrap_servers == "a:1,b:2"
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", "nowhere")
    with pytest.raises(ConfigError, match="TIDELOG_BOOTSTRAP_SERVERS: 'nowhere' is not host:port"):
        parse_write({})
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS")
    with pytest.raises(LocalError, match=r"no cluster is known.*the option tidelog\.bootstrap\.servers=HOST:PORT"):
        parse_write({})


def test_options_of_spark_itself_are_accepted() -> None:
    assert parse_write(SERVERS | {"checkpointLocation": "/tmp/x", "path": ""}).topic is None


def test_settings_of_the_client_reach_it_under_their_own_names() -> None:
    options = parse_write(
        SERVERS
        | {"tidelog.linger.ms": "5", "tidelog.acks": "1", "tidelog.enable.idempotence": "false"}
        | {"tidelog.compression.type": "zstd"}
    )
    assert options.client == {
        "linger_ms": 5,
        "acks": 1,
        "enable_idempotence": False,
        "compression_type": "zstd",
    }
    assert parse_read(READ | {"groupIdPrefix": "job"}, Use.BATCH_READ).client == {"client_id": "job"}
    limited = parse_read(READ | {"tidelog.max.decompressed.batch.bytes": "5"}, Use.STREAM_READ)
    assert limited.client == {"max_decompressed_batch_bytes": 5}


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15m", 900_000), ("30 seconds", 30_000), ("100ms", 100), ("1 hour", 3_600_000), ("2d", 172_800_000)],
)
def test_durations_are_sparks(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


def test_headers_option_is_read_without_the_other_options() -> None:
    assert not wants_headers({})
    assert wants_headers({"includeheaders": "TRUE"})
    with pytest.raises(ConfigError, match="includeHeaders"):
        wants_headers({"includeHeaders": "maybe"})
