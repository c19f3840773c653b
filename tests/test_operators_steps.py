"""The programs accept everything that OPERATIONS.md tells an operator to write and to type."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from node.net.http_server import DEADLINE_S, MAX_CONNECTIONS, MAX_REQUEST_BYTES
from node.settings.broker_settings import BrokerSettings
from tests.test_operations import OPERATIONS, ROOT, section
from tidelog.cli.cluster.up import up
from tidelog.errors import ConfigError
from tidelog.local.shared_settings import RESERVED
from tidelog.protocol.listeners import BROKERS

MACHINES = section("Three machines")


def blocks(text: str, language: str = "") -> list[str]:
    """Return the content of the fenced blocks of that language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def settings_files(directory: Path) -> list[Path]:
    paths = [directory / "cluster.toml", directory / "broker.toml"]
    for path, text in zip(paths, blocks(MACHINES, "toml"), strict=True):
        path.write_text(text)
    return paths


def test_documented_settings_of_three_machines_are_valid_and_agree(
    tmp_path: Path,
) -> None:
    settings = BrokerSettings.load(*settings_files(tmp_path))
    assert [str(listener.advertised) for listener in settings.listener_endpoints] == ["host-1:9092", "host-1:9601"]
    assert "broker_id" not in tomllib.loads((tmp_path / "cluster.toml").read_text())
    ticks = re.search(r"`tickTime` must be between ([\d,]+) and ([\d,]+) ms", MACHINES)
    assert ticks is not None
    least, most = (int(number.replace(",", "")) for number in ticks.groups())
    assert (least * 20, most * 2) == (settings.zookeeper_session_timeout_ms,) * 2


def test_a_wrong_setting_is_refused_in_the_words_that_stand_there(tmp_path: Path) -> None:
    cluster, own = settings_files(tmp_path)
    cluster.write_text(cluster.read_text().replace("min_insync_replicas", "min_insync_replica"))
    with pytest.raises(ConfigError) as raised:
        BrokerSettings.load(cluster, own)
    assert f"broker: {raised.value}".replace(str(tmp_path), "/etc/tidelog") in OPERATIONS


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    [unit] = blocks(MACHINES, "ini")
    file = tmp_path / "tidelog.service"
    file.write_text(unit.replace("/opt/tidelog/bin/tidelog", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "tidelog" in line]
    assert (done.returncode, complaints) == (0, [])


def test_systemd_unit_allows_log_writes_and_controlled_shutdown(tmp_path: Path) -> None:
    [unit] = blocks(MACHINES, "ini")
    settings = BrokerSettings.load(*settings_files(tmp_path))
    assert f"ReadWritePaths={' '.join(settings.log_dirs)}\n" in unit
    [time_limit_s] = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(time_limit_s) * 1000 > 5 * settings.controlled_shutdown_timeout_ms


def test_every_option_of_up_stands_there_and_what_it_decides_itself() -> None:
    text = section("Settings of `tidelog up`")
    options = {option for param in up.params for option in param.opts}
    assert set(re.findall(r"^\| `(--[\w-]+)", text, re.MULTILINE)) == options
    refused = text.split("refuses them in its `--config`: ")[1].split(", which is an option")[0]
    assert set(re.findall(r"`(\w+)`", refused)) == {*RESERVED, "zookeeper"}


def test_operations_lists_the_settings_of_compose() -> None:
    rows = {name: value for name, value in re.findall(r"^\| `(\w+)` \|.*?\| (.*?) \|", section("In containers"), re.M)}
    cluster = tomllib.loads((ROOT / "compose/cluster.toml").read_text())
    compose = (ROOT / "docker-compose.yml").read_text()
    zookeeper = dict(re.findall(r'^  (Z\w+): "?([\w,]+)"?$', compose, re.MULTILINE))
    assert len(zookeeper) == 5
    for name, value in {**cluster, **zookeeper}.items():
        assert rows.pop(name) == f"`{value[0] if isinstance(value, list) else value}`"
    files = [(ROOT / "compose/cluster.toml", ROOT / f"compose/broker-{number}.toml") for number in (1, 2, 3)]
    for listeners in zip(*(BrokerSettings.load(*pair).listener_endpoints for pair in files), strict=True):
        if listeners[0].name != BROKERS:
            documented = ", ".join(f"`{each.advertised}`" for each in listeners)
            assert rows.pop(listeners[0].name) == documented
    for name, documented in rows.items():
        assert set(re.findall(rf"^  {name}: (\S+)$", compose, re.MULTILINE)) == set(
            re.findall(r"`(.*?)`", documented)
        ), name


def test_the_http_ports_bounds_are_those_that_it_has() -> None:
    bounds = f"{MAX_REQUEST_BYTES >> 10} KiB and {DEADLINE_S:.0f} s, {MAX_CONNECTIONS} connections"
    assert f"A request has at most {bounds} are open at once" in section("Metrics and readiness")


def test_the_alerts_ask_for_series_that_there_are() -> None:
    text = section("Metrics and readiness")
    series = set(re.findall(r"^\| `(tidelog_\w+)` \|", text, re.MULTILINE))
    [rules] = blocks(text, "yaml")
    asked = {name.removesuffix("_bucket") for name in re.findall(r"tidelog_\w+", rules)}
    assert len(asked) > 5 and asked <= series
