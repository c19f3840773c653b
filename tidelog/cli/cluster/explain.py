"""`tidelog explain`: shows why a partition is not healthy."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import open_admin
from tidelog.cli.commands import Command
from tidelog.cli.common_options import bootstrap_option, json_option, timeout_option
from tidelog.cli.name_types import PARTITION
from tidelog.errors import UnknownTopicOrPartitionError
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.diagnosis.explain_partition import Finding, PartitionFacts

_WRONG = 1


@click.command(cls=Command)
@click.argument("partition", metavar="TOPIC/PARTITION", type=PARTITION)
@json_option
@bootstrap_option
@timeout_option
def explain(partition: TopicPartition, as_json: bool, bootstrap_servers: str | None, timeout: float) -> int:
    """Show why a partition is under-replicated, refuses writes, hides records or keeps segments.

    Exit status 0 if nothing is wrong, else 1.
    """
    with open_admin(bootstrap_servers, timeout, client_id="tidelog-explain") as admin:
        from tidelog.client.diagnosis.explain_partition import explain as explained

        try:
            facts = admin.partition_facts(partition)
        except UnknownTopicOrPartitionError as error:
            raise click.ClickException(f"{error} (tidelog topic list shows all topics)") from None
    findings = explained(facts)
    wrong = any(finding.problem for finding in findings)
    if as_json:
        fields = {
            "topic": partition.topic,
            "partition": partition.partition,
            "healthy": not wrong,
            "findings": [asdict(finding) for finding in findings],
        }
        click.echo(json.dumps(fields))
    else:
        _show(facts, findings, wrong)
    return _WRONG if wrong else 0


def _show(facts: PartitionFacts, findings: list[Finding], wrong: bool) -> None:
    click.echo(_headline(facts))
    width = max((len(finding.about) for finding in findings), default=0)
    for problem, heading in ((True, "problems"), (False, "notes")):
        shown = [finding for finding in findings if finding.problem is problem]
        if shown:
            click.echo(f"\n{heading}:")
        for finding in shown:
            click.echo(f"  {finding.about:<{width}}  {finding.sentence}")
    if not wrong:
        click.echo("\nnothing is wrong")


def _headline(facts: PartitionFacts) -> str:
    replicas = ", ".join(map(str, facts.metadata.replicas))
    where = f"{facts.tp.topic}/{facts.tp.partition}"
    if facts.leader is None:
        return f"{where}: no leader, replicas {replicas}"
    leader_id, leader = facts.leader
    return (
        f"{where}: broker {leader_id} leads in epoch {leader.leader_epoch}, replicas {replicas}, in sync"
        f" {', '.join(map(str, leader.isr))}; offsets {leader.log_start_offset} to {leader.log_end_offset},"
        f" high watermark {leader.high_watermark}"
    )
