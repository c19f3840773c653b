"""Test the cleanup of a shared cluster; tests/processes/test_chaos.py cleans up a real one."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from verify.chaos.cleanup import command, remove


def test_cleanup_refuses_an_empty_prefix() -> None:
    with pytest.raises(ValueError, match="the prefix is empty"):
        asyncio.run(remove("127.0.0.1:1", ""))


def test_cleanup_reports_an_unreachable_cluster_in_one_line() -> None:
    ran = subprocess.run(command("127.0.0.1:1", "chaos-7-"), capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert "127.0.0.1:1" in ran.stderr and len(ran.stderr.splitlines()) == 1
