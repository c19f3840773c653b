from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tidelog import Admin, Consumer, Producer
from tidelog.cli.common_options import find_cluster, find_data_dir
from tidelog.errors import ConfigError, LocalError
from tidelog.local.home import data_home, forget_last_up, last_up, prepare_directory, remember_last_up
from tidelog.local.processes.process import birth_of
from tidelog.local.state import BrokerState, ClusterState, ProcessState, load_state, save_state


def cluster(pid: int = 0, birth: str = "") -> ClusterState:
    broker = BrokerState(20_001, pid, birth, broker_id=1, replication_port=20_002)
    return ClusterState("127.0.0.1:20000", ProcessState(20_000), (broker,), {"log_level": "INFO"})


def running_cluster() -> ClusterState:
    """Its broker is this very process."""
    import os

    return cluster(os.getpid(), birth_of(os.getpid()) or "")


def test_home_is_the_users_choice_first() -> None:
    assert data_home({"TIDELOG_HOME": "/a", "XDG_DATA_HOME": "/b", "HOME": "/c"}) == Path("/a")
    assert data_home({"XDG_DATA_HOME": "/b"}) == Path("/b/tidelog")
    assert data_home({"XDG_DATA_HOME": "relative"}) == Path("~/.local/share/tidelog").expanduser()


def test_the_last_up_is_remembered_until_it_is_purged(tmp_path: Path) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    assert last_up(home) is None
    remember_last_up(data, home)
    assert last_up(home) == data
    forget_last_up(tmp_path / "another", home)
    assert last_up(home) == data
    forget_last_up(data, home)
    assert last_up(home) is None


def test_unwritable_home_only_forgets_the_last_up(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way")
    remember_last_up(tmp_path, tmp_path / "home")
    assert last_up(tmp_path / "home") is None


def test_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(LocalError, match="is not a directory; choose another directory with --data-dir"):
            prepare_directory(place)
    assert prepare_directory(tmp_path / "new" / "one").is_dir()


def test_state_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    assert load_state(tmp_path) is None
    save_state(tmp_path, running_cluster())
    assert load_state(tmp_path) == running_cluster()


def test_directory_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="is not UTF-8; choose another directory"):
        prepare_directory(tmp_path / "\udcff")
    assert list(tmp_path.iterdir()) == []


def test_failed_write_of_the_state_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").mkdir()
    with pytest.raises(IsADirectoryError):
        save_state(tmp_path, cluster())
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"zookeeper": 1}', '{"brokers": [{"nope": 1}]}', "\xff"])
def test_foreign_state_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(LocalError, match="was not written by tidelog up"):
        load_state(tmp_path)


def test_command_prefers_option_then_environment_then_last_up(tmp_path: Path) -> None:
    environment = {"TIDELOG_HOME": str(tmp_path)}
    with pytest.raises(LocalError, match="start one with tidelog up"):
        find_cluster(None, environment)

    save_state(tmp_path, running_cluster())
    remember_last_up(tmp_path, tmp_path)
    assert find_cluster(None, environment) == "127.0.0.1:20001"
    environment["TIDELOG_BOOTSTRAP_SERVERS"] = "there:1"
    assert find_cluster(None, environment) == "there:1"
    assert find_cluster("here:1", environment) == "here:1"


def brokers_of(client: Any) -> str:
    client.close()
    (servers,) = re.findall("bootstrap_servers='(.*?)'", repr(client))
    return str(servers)


@pytest.mark.parametrize("client", [Admin, Consumer, Producer])
def test_clients_find_the_cluster_as_commands_do(tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path))
    with pytest.raises(LocalError, match=r"start one with tidelog up, set TIDELOG_BOOT.* pass bootstrap_servers="):
        client()

    save_state(tmp_path, running_cluster())
    remember_last_up(tmp_path, tmp_path)
    assert brokers_of(client()) == "127.0.0.1:20001"
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", "there:1")
    assert brokers_of(client()) == "there:1"
    assert brokers_of(client(bootstrap_servers="here:1")) == "here:1"


def test_a_malformed_environment_variable_is_named_by_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", "nonsense")
    with pytest.raises(ConfigError, match="TIDELOG_BOOTSTRAP_SERVERS: 'nonsense' is not host:port"):
        Consumer()


def test_a_client_says_that_the_last_cluster_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path))
    save_state(tmp_path, cluster())
    remember_last_up(tmp_path, tmp_path)
    with pytest.raises(LocalError, match=r"is stopped: start it with tidelog up$"):
        Producer()


def test_stopped_cluster_differs_from_a_missing_one(tmp_path: Path) -> None:
    data = tmp_path / "my data"
    data.mkdir()
    save_state(data, cluster())
    remember_last_up(data, tmp_path)
    with pytest.raises(LocalError, match=r"is stopped: start it with tidelog up --data-dir '.*my data'$"):
        find_cluster(None, {"TIDELOG_HOME": str(tmp_path)})


def test_local_commands_find_the_last_up_too(tmp_path: Path) -> None:
    environment = {"TIDELOG_HOME": str(tmp_path)}
    assert find_data_dir(None, environment) == tmp_path
    remember_last_up(tmp_path / "data", tmp_path)
    assert find_data_dir(None, environment) == tmp_path / "data"
    assert find_data_dir(tmp_path / "other", environment) == tmp_path / "other"
