"""The logs of healthy brokers during README's first steps have only lines that an operator needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.processes.harness.cluster import running_cluster
from tests.processes.harness.command import Shell

pytestmark = pytest.mark.slow

#: Lines about brokers' addresses, the controller, and the topic that brokers create by themselves.
WORTH_READING = re.compile(
    r" INFO ("
    r"node\.process\.broker: broker \d serves health and metrics at http://\S+"
    r"|node\.process\.broker: broker \d serves (\S+, )+epoch \d+"
    r"|node\.controller\.controller_term: broker \d is the controller, epoch 1"
    r"|node\.groups\.offsets_topic: created __consumer_offsets with 50 partitions"
    r")$"
)


def test_healthy_brokers_log_no_line_about_normal_life(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        shell = Shell(cluster.local.home.parent, cluster.local.home)
        shell.succeed("topic", "create", "lines", "--partitions", "6")
        shell.succeed("produce", "lines", given=b"".join(b"%d\n" % number for number in range(1000)))
        shell.succeed("consume", "lines")
        shell.succeed("consume", "lines", "--group", "readers")
        shell.succeed("group", "describe", "readers")
        shell.succeed("topic", "describe", "lines")
        shell.succeed("offsets", "lines", "--at", "2026-01-01T00:00:00Z")
        shell.succeed("topic", "delete", "lines")
        for broker_id in cluster.broker_ids:
            said = cluster.local.log_file(broker_id).read_text().splitlines()
            assert [line for line in said if not WORTH_READING.search(line)] == []
            assert 2 <= len(said) <= 4
