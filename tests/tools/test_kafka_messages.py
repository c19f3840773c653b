"""The generator of Kafka's message classes, with definitions in the form of Kafka's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tidelog.errors import UnsupportedVersionError
from tidelog.protocol.kafka.codec import decode, encode
from tidelog.protocol.kafka.schema import NO_VERSION, Versions
from tools.kafka_messages.definitions import read_definition
from tools.kafka_messages.families import Family
from tools.kafka_messages.render import render_apis, render_family, snake_case

REQUEST = """
// A licence.
{
  "apiKey": 99,
  "type": "request",
  "name": "PingRequest",
  // Version 2 adds Note.
  "validVersions": "0-5",
  "flexibleVersions": "3+",
  "fields": [
    { "name": "TopicName", "type": "string", "versions": "0+", "nullableVersions": "1+", "about": "The topic." },
    { "name": "Count", "type": "int32", "versions": "1+", "default": "0x10", "ignorable": true },
    { "name": "Note", "type": "string", "versions": "2-4", "nullableVersions": "2+", "default": "null" },
    { "name": "Items", "type": "[]Item", "versions": "0+", "fields": [
      { "name": "ItemId", "type": "int8", "versions": "0+" },
      { "name": "Late", "type": "uuid", "versions": "5+" }
    ]},
    { "name": "Hint", "type": "bool", "versions": "3+", "taggedVersions": "3+", "tag": 0, "default": "true" }
  ]
}
"""
RESPONSE = """
{
  "apiKey": 99, "type": "response", "name": "PingResponse", "validVersions": "0-5", "flexibleVersions": "none",
  "fields": [
    { "name": "ThrottleTimeMs", "type": "int32", "versions": "0+" },
    { "name": "Items", "type": "[]Item", "versions": "0+", "fields": [
      { "name": "ItemId", "type": "int8", "versions": "0+" }
    ]}
  ]
}
"""


def generated(directory: Path, request: str, response: str, valid: str) -> str:
    (directory / "PingRequest.json").write_text(request)
    (directory / "PingResponse.json").write_text(response)
    read = [read_definition(directory, f"Ping{kind}", Versions.parse(valid)) for kind in ("Request", "Response")]
    return render_family(Family("pings", "pings", {"Ping": valid}), [(read[0], read[1])])


def module_of(source: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("pings")
    monkeypatch.setitem(sys.modules, "pings", module)
    exec(compile(source, "pings", "exec"), vars(module))
    return module


def test_generated_classes_have_the_fields_of_their_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = generated(tmp_path, REQUEST, RESPONSE, "0-4")
    assert "The topic" not in source
    pings = module_of(source, monkeypatch)
    request = pings.PingRequest(topic_name="t", note="n", items=(pings.Item(item_id=7),), hint=False)
    assert (request.count, pings.PingRequest.valid, pings.PingRequest.flexible_from) == (16, (0, 4), 3)
    assert not hasattr(request.items[0], "late")
    assert encode(request, 3) == b"\x02t\x00\x00\x00\x10\x02n\x02\x07\x00\x01\x00\x01\x00"
    assert decode(pings.PingRequest, 3, encode(request, 3)) == request
    with pytest.raises(UnsupportedVersionError, match=r"note: version 1 lacks this field"):
        encode(request, 1)
    plain = pings.PingRequest(topic_name="t", count=3, items=())
    assert encode(plain, 0) == b"\x00\x01t\x00\x00\x00\x00"
    assert (pings.PingRequest.response, pings.PingResponse.flexible_from) == (pings.PingResponse, None)


def test_structures_that_are_the_same_are_generated_once(tmp_path: Path) -> None:
    assert generated(tmp_path, REQUEST, RESPONSE, "0-4").count("class Item(Struct)") == 1
    with pytest.raises(AssertionError, match=r"two structures Item"):
        generated(tmp_path, REQUEST, RESPONSE, "0-5")


def test_definitions_that_the_tool_does_not_read_are_refused(tmp_path: Path) -> None:
    common = REQUEST.replace('"fields": [', '"commonStructs": [], "fields": [', 1)
    with pytest.raises(AssertionError, match=r"common structures"):
        generated(tmp_path, common, RESPONSE, "0-4")
    tagged_later = REQUEST.replace('"taggedVersions": "3+"', '"taggedVersions": "4+"')
    with pytest.raises(AssertionError, match=r"Hint is tagged at times"):
        generated(tmp_path, tagged_later, RESPONSE, "0-4")


def test_the_table_of_apis_has_their_versions_and_files(tmp_path: Path) -> None:
    (tmp_path / "PingRequest.json").write_text(REQUEST)
    request = read_definition(tmp_path, "PingRequest", Versions(1, 4))
    assert '    Api(99, "Ping", Versions(1, 4), 3, "pings"),' in render_apis([("pings", request)])


def test_ranges_of_versions_are_parsed() -> None:
    assert [Versions.parse(text) for text in ("3+", "0-12", "1", "none")] == [(3, 32767), (0, 12), (1, 1), NO_VERSION]
    assert (3 in Versions(3, 5), 5 in Versions(3, 5), 6 in Versions(3, 5), 0 in NO_VERSION) == (
        True,
        True,
        False,
        False,
    )


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--help"], 0, "the directory of Kafka's message definitions"),
        ([], 2, "the following arguments are required: directory"),
        (["no-such"], 2, "no-such is no directory"),
        (["."], 1, "Request.json does not exist"),
    ],
)
def test_command_line_explains_itself_and_its_errors(
    tmp_path: Path, arguments: list[str], status: int, says: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "tools.kafka_messages", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (status, False)
    assert says in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("name", "expected"),
    [("FetchOffset", "fetch_offset"), ("LastKnownElr", "last_known_elr"), ("ISRNodes", "isr_nodes")],
)
def test_names_of_fields_follow_python(name: str, expected: str) -> None:
    assert snake_case(name) == expected
