"""`tidelog offsets`: which offset a point in time stands for, and why where there is none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tidelog.cli.find import bootstrap_option, find_cluster, json_option, timeout_option
from tidelog.cli.names import TOPIC
from tidelog.cli.table import format_table
from tidelog.cli.times import TIME_HELP, format_time, parse_time
from tidelog.clock import SystemClock
from tidelog.model import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from tidelog.consumer import Consumer

#: Why a look-up found nothing, for programs and for people.
_REASONS = {
    "empty": "the partition holds no record",
    "past_end": "every record is older",
}


@click.command()
@click.argument("topic", type=TOPIC)
@click.option("--at", required=True, metavar="TIME", help=f"{TIME_HELP}.")
@json_option
@bootstrap_option
@timeout_option
def offsets(topic: str, at: str, as_json: bool, bootstrap_servers: str | None, timeout: float) -> None:
    """For each partition of TOPIC, show the first offset whose record has this time or a later one."""
    try:
        timestamp_ms = parse_time(at.removeprefix("@"), SystemClock().now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--at'") from None
    servers = find_cluster(bootstrap_servers)

    from tidelog.consumer import Consumer

    timeout_ms = round(timeout * 1000)
    with Consumer(
        servers,
        client_id="tidelog-offsets",
        default_api_timeout_ms=timeout_ms,
        bootstrap_timeout_ms=min(timeout_ms, 5_000),
    ) as consumer:
        numbers = consumer.partitions_for_topic(topic)
        if numbers is None:
            raise click.ClickException(f"no topic {topic!r}: tidelog topic list shows what there is")
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        found = consumer.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
        reasons = _explain(consumer, [tp for tp in partitions if found[tp] is None])
    if as_json:
        answers = [_as_json(tp, found[tp], reasons.get(tp)) for tp in partitions]
        click.echo(json.dumps({"topic": topic, "timestamp": timestamp_ms, "partitions": answers}))
        return
    rows: list[tuple[object, ...]] = []
    for tp in partitions:
        answer = found[tp]
        if answer is None:
            rows.append((tp.partition, None, None, _REASONS[reasons[tp]]))
        else:
            rows.append((tp.partition, answer.offset, format_time(answer.timestamp), None))
    for line in format_table(("partition", "offset", "time of its record", "why none"), rows):
        click.echo(line)


def _explain(consumer: Consumer, partitions: list[TopicPartition]) -> dict[TopicPartition, str]:
    if not partitions:
        return {}
    begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    return {tp: "past_end" if ends[tp] > begins[tp] else "empty" for tp in partitions}


def _as_json(tp: TopicPartition, answer: OffsetAndTimestamp | None, reason: str | None) -> dict[str, object]:
    return {
        "partition": tp.partition,
        "offset": answer.offset if answer else None,
        "timestamp": answer.timestamp if answer else None,
        "leader_epoch": answer.leader_epoch if answer else None,
        "reason": reason,
    }
