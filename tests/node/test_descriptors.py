"""The descriptors of a broker process are enough for its files and its connections at the same time."""

from __future__ import annotations

import resource
import sys

import pytest

from node.process.descriptors import DescriptorShares, descriptor_limit, raise_descriptor_limit, share_descriptors


@pytest.mark.parametrize(
    ("limit", "files", "reserve", "connections"),
    [(256, 128, 32, 64), (1_024, 512, 128, 256), (4_096, 2_048, 128, 1_792), (20_000, 10_000, 128, 9_744)],
)
def test_limit_is_shared_by_files_and_connections(limit: int, files: int, reserve: int, connections: int) -> None:
    assert share_descriptors(limit) == DescriptorShares(files, reserve, connections)


@pytest.mark.parametrize("limit", [64, 100, 1_023, 5_000, 1_048_576, sys.maxsize])
def test_shares_leave_descriptors_for_brokers_and_libraries(limit: int) -> None:
    left = limit - sum(share_descriptors(limit))
    assert left == min(128, limit // 8)


def test_limit_is_raised_to_the_hard_limit() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert descriptor_limit() == 256
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
