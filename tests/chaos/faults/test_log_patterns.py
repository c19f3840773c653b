"""Each pattern by which a fault finds its effect in a broker's log matches a line that the broker can log."""

from __future__ import annotations

import errno
import os
import re

import pytest

from node.handlers.control import role_changes, role_plan
from node.process import out_of_memory
from node.replication import replica_manager
from storage import log_manager
from storage.directory import log_directory
from storage.log import recovery
from tests.chaos.faults.logged_texts import logged_texts
from verify.chaos.faults import damage, full_disks, resources, turned_back

NO_SPACE = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize(
    ("pattern", "sources"),
    [
        pytest.param(full_disks._GONE, [log_manager], id="logs are missing"),
        pytest.param(full_disks._FULL, [log_manager], id="a disk is full"),
        pytest.param(damage._SHORTER, [recovery], id="a log was cut"),
        pytest.param(damage._SHORTER, [replica_manager], id="a log ends before its high watermark"),
        pytest.param(damage._SHORTER, [log_directory], id="a log ends before its recovery point"),
        pytest.param(resources.OutOfMemory.words, [out_of_memory], id="no memory is left"),
        pytest.param(turned_back._REFUSED, [role_plan, role_changes], id="a state is refused"),
    ],
)
def test_pattern_matches_a_line_that_the_broker_logs(pattern: str, sources: list[object]) -> None:
    assert any(re.search(pattern, line) for line in logged_texts(sources, error=NO_SPACE)), pattern
