"""`tidelog group remove-member` names each member that is removed, and each that is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidelog import MemberToRemove
from tidelog.cli.groups import group_remove_member
from tidelog.errors import TidelogError, UnknownMemberIdError


class ScriptedAdmin:
    """An admin that knows the members with an id `here`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[MemberToRemove]]] = []

    def remove_group_members(
        self, group_id: str, members: list[MemberToRemove]
    ) -> dict[MemberToRemove, TidelogError | None]:
        self.asked.append((group_id, members))
        return {
            each: None if "here" in (each.member_id, each.group_instance_id) else UnknownMemberIdError(f"no {each}")
            for each in members
        }


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    scripted = ScriptedAdmin()

    @contextmanager
    def open_admin(*_: Any) -> Iterator[ScriptedAdmin]:
        yield scripted

    monkeypatch.setattr(group_remove_member, "open_admin", open_admin)
    return scripted


def run(*arguments: str) -> Result:
    return CliRunner().invoke(group_remove_member.remove_member, ["g", *arguments])


def test_members_are_named_by_both_kinds_of_ids(admin: ScriptedAdmin) -> None:
    result = run("--instance-id", "here", "--member-id", "here")
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        ["removed the member of g with group_instance_id 'here'", "removed the member of g with member_id 'here'"],
    )
    assert admin.asked == [("g", [MemberToRemove(group_instance_id="here"), MemberToRemove("here")])]


def test_unknown_member_is_an_error_after_the_others_are_removed(admin: ScriptedAdmin) -> None:
    result = run("--instance-id", "gone", "--instance-id", "here")
    assert result.exit_code == 1
    assert result.stdout == "removed the member of g with group_instance_id 'here'\n"
    assert "no group_instance_id 'gone': tidelog group describe g --members shows its members" in result.stderr


def test_json_has_each_member_with_its_error(admin: ScriptedAdmin) -> None:
    result = run("--member-id", "gone", "--member-id", "here", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "group": "g",
        "members": [
            {"member_id": "gone", "group_instance_id": None, "error": "no member_id 'gone'"},
            {"member_id": "here", "group_instance_id": None, "error": None},
        ],
    }


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "name at least one member with --instance-id or --member-id"),
        (("--instance-id", ""), "the id of a member must not be empty"),
        (("--member-id", "here", "--member-id", ""), "the id of a member must not be empty"),
    ],
)
def test_command_without_a_usable_id_asks_no_broker(
    admin: ScriptedAdmin, arguments: tuple[str, ...], complaint: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2 and complaint in result.stderr
    assert admin.asked == []
