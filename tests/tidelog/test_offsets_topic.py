from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import CorruptMessageError
from tidelog.groups.assignment.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.groups.assignment.sticky_user_data import MemberData, decode_member_data, encode_member_data
from tidelog.groups.offsets_topic import (
    Commit,
    CommitKey,
    GroupKey,
    GroupRecord,
    MemberRecord,
    UnknownKey,
    decode_commit,
    decode_group,
    decode_key,
    encode_commit,
    encode_group,
    encode_key,
    partition_for,
)
from tidelog.model import TopicPartition

log = logging.getLogger(__name__)

MEMBER = MemberRecord("m-1", "i", "c", "/h", 60_000, 10_000, b"want", b"have")


@pytest.mark.parametrize(
    ("group", "partition"),
    [
        ("test", 48),
        ("demoGroup", 38),
        ("", 0),
        ("größe", 7),
        ("😀", 49),
        ("billing", 9),
        ("my-group", 12),
        ("polygenelubricants", 0),
    ],
)
def test_group_partition_matches_javas_hash(group: str, partition: int) -> None:
    """The last three have negative hashes; that of the last one, −2^31, has no absolute value in Java."""
    assert partition_for(group, 50) == partition


def test_a_commit_in_bytes() -> None:
    assert encode_key(CommitKey("g", "topic", 7)).hex(" ", 2) == "0001 0001 6700 0574 6f70 6963 0000 0007"
    assert encode_commit(Commit(5, 2, "note", 1_000)) == bytes.fromhex(
        "0003 0000000000000005 00000002 0004 6e6f7465 00000000000003e8"
    )


def test_a_group_in_bytes() -> None:
    assert encode_key(GroupKey("g")).hex(" ") == "00 02 00 01 67"
    assert encode_group(GroupRecord("consumer", 3, "range", "m-1", 1_000, (MEMBER,))) == bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000003 0005 72616e6765 0003 6d2d31 00000000000003e8 00000001"
        "0003 6d2d31 0001 69 0001 63 0002 2f68 0000ea60 00002710 00000004 77616e74 00000004 68617665"
    )
    assert encode_group(GroupRecord("", 4, None, None, 1_000, ())) == bytes.fromhex(
        "0003 0000 00000004 ffff ffff 00000000000003e8 00000000"
    )


def test_older_versions_are_read() -> None:
    assert decode_key(bytes.fromhex("0000 0001 67 0001 74 00000002")) == CommitKey("g", "t", 2)
    assert decode_commit(bytes.fromhex("0000 0000000000000005 0000 00000000000003e8")) == Commit(5, -1, "", 1_000)
    with_expiry = "0001 0000000000000005 0000 00000000000003e8 00000000000007d0"
    assert decode_commit(bytes.fromhex(with_expiry)) == Commit(5, -1, "", 1_000, 2_000)
    assert decode_commit(bytes.fromhex("0002 0000000000000005 0000 00000000000003e8")) == Commit(5, -1, "", 1_000)
    oldest = "0000 0001 70 00000003 ffff ffff 00000001 0001 6d 0001 63 0001 68 00002710 00000000 00000000"
    member = MemberRecord("m", None, "c", "h", 10_000, 10_000, b"", b"")
    assert decode_group(bytes.fromhex(oldest)) == GroupRecord("p", 3, None, None, -1, (member,))


def test_keys_of_later_versions_are_unknown_and_not_corrupt() -> None:
    assert decode_key(bytes.fromhex("0003 0001 67")) == UnknownKey(3)
    for damaged in ("", "00", "0001 0001", "0001 ffff 0001 74 00000000", "0002 0001 ff"):
        with pytest.raises(CorruptMessageError):
            decode_key(bytes.fromhex(damaged))


def test_array_longer_than_the_data_allocates_nothing() -> None:
    with pytest.raises(CorruptMessageError, match="array of 2147483647"):
        decode_group(bytes.fromhex("0003 0000 00000004 ffff ffff 00000000000003e8 7fffffff"))


TEXT = st.text(max_size=20)
TPS = st.sets(st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 9))).map(lambda s: tuple(sorted(s)))


def test_commit_with_an_expiry_is_written_in_the_version_that_has_one() -> None:
    commit = Commit(5, -1, "note", 1_000, 9_000)
    assert encode_commit(commit) == bytes.fromhex(
        "0001 0000000000000005 0004 6e6f7465 00000000000003e8 0000000000002328"
    )
    assert decode_commit(encode_commit(commit)) == commit


@given(TEXT, TEXT, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1))
def test_a_commit_is_read_as_it_was_written(group: str, text: str, number: int, offset: int, epoch: int) -> None:
    key, commit = CommitKey(group, text, number), Commit(offset, epoch, text, 1)
    assert decode_key(encode_key(key)) == key
    assert decode_commit(encode_commit(commit)) == commit


@given(st.integers(-1, 5).map(lambda version: version.to_bytes(2, "big", signed=True)), st.binary(max_size=80))
def test_bytes_at_random_are_read_or_refused(version: bytes, rest: bytes) -> None:
    data = version + rest
    for decode in (decode_key, decode_commit, decode_group, decode_subscription, decode_assignment):
        try:
            decode(data)
        except CorruptMessageError as error:
            log.debug("%s", error)
    decode_member_data(data)


@given(st.sets(TEXT).map(tuple), TPS, st.integers(-1, 9), st.none() | TEXT, st.none() | st.binary(max_size=9))
def test_a_subscription_is_read_as_it_was_written(
    topics: tuple[str, ...], owned: tuple[TopicPartition, ...], generation: int, rack: str | None, data: bytes | None
) -> None:
    subscription = Subscription(topics, owned, generation, rack, data)
    assert decode_subscription(encode_subscription(subscription)) == subscription
    assert decode_assignment(encode_assignment(owned)) == owned
    assert decode_member_data(encode_member_data(MemberData(owned, generation))) == MemberData(owned, generation)


def test_subscriptions_and_assignments_in_bytes() -> None:
    mine = Subscription(("t",), (TopicPartition("t", 1),), 5)
    assert encode_subscription(mine) == bytes.fromhex(
        "0003 00000001 0001 74 ffffffff 00000001 0001 74 00000001 00000001 00000005 ffff"
    )
    oldest = bytes.fromhex("0000 00000001 0001 74 00000002 aabb")
    assert decode_subscription(oldest) == Subscription(("t",), user_data=b"\xaa\xbb")
    assert encode_assignment(mine.owned) == bytes.fromhex("0000 00000001 0001 74 00000001 00000001 ffffffff")
    assert decode_assignment(b"") == ()
