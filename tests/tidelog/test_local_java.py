from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.errors import LocalError
from tidelog.local.java import find_java


def install(home: Path, says: str, release: str | None = None) -> Path:
    """A pretended Java: its `-version` output and, where given, its release file."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return java


def environment(path: Path | None = None, home: Path | None = None) -> dict[str, str]:
    settings = {"PATH": str(path / "bin") if path else ""}
    return settings | ({"JAVA_HOME": str(home)} if home else {})


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    on_path = install(tmp_path / "a", 'openjdk version "21.0.1"')
    at_home = install(tmp_path / "b", 'openjdk version "17.0.15"')
    assert find_java(environment(tmp_path / "a", tmp_path / "b")) == at_home
    assert find_java(environment(tmp_path / "a")) == on_path


def test_an_old_java_home_does_not_hide_a_newer_one_on_path(tmp_path: Path) -> None:
    install(tmp_path / "old", 'java version "1.8.0_392"')
    newer = install(tmp_path / "new", 'openjdk version "17.0.1"')
    assert find_java(environment(tmp_path / "new", tmp_path / "old")) == newer


def test_release_file_is_read_without_starting_a_jvm(tmp_path: Path) -> None:
    java = install(tmp_path, "broken", release="25.0.3")
    assert find_java(environment(tmp_path)) == java


def test_missing_java_names_the_package_in_one_line() -> None:
    with pytest.raises(LocalError) as refused:
        find_java(environment())
    assert "apt-get install openjdk-17-jre-headless" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("says", "shown"), [('java version "1.8.0_392"', "is Java 8"), ("no idea", "does not report its version")]
)
def test_unsuitable_java_is_named(tmp_path: Path, says: str, shown: str) -> None:
    java = install(tmp_path, says)
    with pytest.raises(LocalError, match="Java 17 or newer is needed") as refused:
        find_java(environment(tmp_path))
    assert f"{java} {shown}" in str(refused.value)


def test_an_old_java_that_is_found_in_both_places_is_named_once(tmp_path: Path) -> None:
    java = install(tmp_path, 'openjdk version "11.0.22"')
    with pytest.raises(LocalError) as refused:
        find_java(environment(tmp_path, tmp_path))
    assert str(refused.value).count(f"{java} is Java 11") == 1
