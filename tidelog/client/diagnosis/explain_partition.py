"""Explain why a partition is not healthy: return sentences with their evidence for the given facts. Pure.

The facts are the metadata and the answers of each broker with a replica
(`tidelog.client.diagnosis.gather_replica_status`). The facts are not taken at one instant. Therefore differences that
disappear by themselves within a second are not reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.model import NO_LEADER, TopicPartition
from tidelog.protocol.messages import PartitionMetadata
from tidelog.protocol.operator_messages import ExamineReplicaResponse, FollowerReport, ReplicaReport, RetentionReport
from tidelog.quantities import count_of, format_duration, format_size, plural

#: Records that a follower has not confirmed for so long only count as in flight, and are not a problem.
IN_FLIGHT_MS = 1000
#: Number of retention checks after which a deletable segment counts as overdue.
_CHECKS_TIME_LIMIT = 2


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The known facts about one partition.

    brokers      the live brokers
    controller   the controller's broker id; −1: none
    reports      the answers of brokers with a replica, by broker
    silent       why the other live brokers with a replica did not answer
    """

    tp: TopicPartition
    brokers: Collection[int]
    controller: int
    metadata: PartitionMetadata
    reports: Mapping[int, ExamineReplicaResponse]
    silent: Mapping[int, str]

    def replica(self, broker_id: int) -> ReplicaReport | None:
        """Return the broker's report about its replica; None if it did not answer or has no replica."""
        answer = self.reports.get(broker_id)
        return answer.replica if answer else None

    @property
    def leader(self) -> tuple[int, ReplicaReport] | None:
        """The broker that reports to lead, with its report; None if there is none.

        If several report to lead, the one with the latest leader epoch counts.
        """
        leading = [
            (report.replica.leader_epoch, broker_id, report.replica)
            for broker_id, report in self.reports.items()
            if report.replica is not None and report.replica.role == "leader"
        ]
        return max(leading, key=lambda each: each[:2])[1:] if leading else None


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about a partition.

    about      one of the constants below
    problem    True if an operator should act
    evidence   the facts behind the sentence, by name
    """

    about: str
    problem: bool
    sentence: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


LEADER, REPLICATION, MIN_ISR = "leader", "replication", "min ISR"
HIGH_WATERMARK, VISIBILITY, SEGMENTS = "high watermark", "visibility", "segments"


def explain(facts: PartitionFacts) -> list[Finding]:
    """Return all findings, problems first; segments only of the leader, or if they are a problem."""
    found = [*_leadership(facts), *_replication(facts)]
    if facts.leader is not None:
        leader_id, leader = facts.leader
        found += _min_isr(leader)
        found += _visibility(leader_id, leader)
    for broker_id, answer in sorted(facts.reports.items()):
        if answer.replica is not None and answer.replica.retention is not None:
            findings = _segments(broker_id, answer.now_ms, answer.replica, answer.replica.retention)
            is_leader = facts.leader is not None and facts.leader[0] == broker_id
            found += [finding for finding in findings if finding.problem or is_leader]
    return sorted(found, key=lambda finding: not finding.problem)


# --- leadership -----------------------------------------------------------------------------------------


def _leadership(facts: PartitionFacts) -> Iterator[Finding]:
    known, leader = facts.metadata, facts.leader
    evidence = {"leader": known.leader, "leader_epoch": known.leader_epoch, "isr": list(known.isr)}
    if leader is None and known.leader in facts.silent:
        why = facts.silent[known.leader]
        yield Finding(LEADER, True, f"broker {known.leader} leads, and does not answer: {why}", evidence)
        return
    if leader is None:
        yield Finding(LEADER, True, f"no broker leads it: {_why_unled(facts)}", evidence)
        return
    leader_id, replica = leader
    if replica.cut_off:
        sentence = (
            f"the leader, broker {leader_id}, has had no contact with ZooKeeper for a session timeout, or is shutting"
            " down: another leader may be elected, and this one does not change the ISR meanwhile"
        )
        yield Finding(LEADER, True, sentence, {"leader": leader_id})
    preferred = replica.replicas[0] if replica.replicas else leader_id
    if preferred != leader_id:
        sentence = f"broker {leader_id} leads, the preferred leader is broker {preferred}"
        yield Finding(LEADER, False, sentence, {"leader": leader_id, "preferred": preferred})


def _why_unled(facts: PartitionFacts) -> str:
    if facts.controller == NO_LEADER:
        return "the cluster has no controller to elect one; see whether ZooKeeper answers (tidelog doctor)"
    candidates = facts.metadata.isr
    live = [broker for broker in candidates if broker in facts.brokers]
    unclean = any(report.replica and report.replica.unclean_election for report in facts.reports.values())
    if not live:
        waits = "" if unclean else " (unclean.leader.election.enable is false: another might lack committed records)"
        return f"of its in-sync replicas {_names(candidates)} none is registered: start one of those brokers{waits}"
    broken = [broker for broker in live if (replica := facts.replica(broker)) and replica.role == "offline"]
    if broken == live:
        return f"the log directory below it is offline on {_brokers(broken)}: repair the disk and start again"
    silent = [f"broker {broker}: {facts.silent[broker]}" for broker in live if broker in facts.silent]
    if silent:
        return f"its in-sync replicas do not answer ({'; '.join(silent)})"
    others = candidates if len(candidates) > 1 or unclean else facts.metadata.replicas
    away = [broker for broker in others if broker not in facts.brokers]
    compared = f"; after a power failure it may wait for {_brokers(away)} to compare logs" if away else ""
    return f"{_brokers(live)} could; the controller, broker {facts.controller}, has not elected any yet{compared}"


# --- ISR ------------------------------------------------------------------------------------------------


def _replication(facts: PartitionFacts) -> Iterator[Finding]:
    leader = facts.leader[1] if facts.leader else None
    isr = leader.isr if leader else facts.metadata.isr
    for broker in leader.replicas if leader else facts.metadata.replicas:
        in_sync = broker in isr
        if facts.leader is not None and broker == facts.leader[0]:
            continue
        why, evidence = _why_missing(facts, broker, leader)
        evidence = {"broker": broker, "in_sync": in_sync, **evidence}
        if not in_sync:
            yield Finding(REPLICATION, True, f"replica {broker} is not in sync: {why}", evidence)
        elif broker not in facts.brokers or broker in facts.silent:
            yield Finding(REPLICATION, True, f"replica {broker} counts as in sync, but {why}", evidence)


def _why_missing(facts: PartitionFacts, broker: int, leader: ReplicaReport | None) -> tuple[str, dict[str, Any]]:
    if broker not in facts.brokers:
        return f"broker {broker} is not registered; it does not run, or does not reach ZooKeeper", {"registered": False}
    if broker in facts.silent:
        return f"its broker does not answer: {facts.silent[broker]}", {"registered": True}
    mine = facts.replica(broker)
    if mine is not None and mine.role == "offline":
        return "its log directory is offline: see its log, repair the disk, start it again", {"role": mine.role}
    if mine is not None and mine.role == "stopped":
        return "it waits for the controller to assign its role", {"role": mine.role}
    if leader is None:
        return "there is no leader to follow", {}
    if mine is not None and mine.leader_epoch < leader.leader_epoch:
        sentence = f"it knows leader epoch {mine.leader_epoch} only, and {leader.leader_epoch} runs"
        return sentence, {"leader_epoch": mine.leader_epoch}
    follower = next((each for each in leader.followers if each.broker_id == broker), None)
    if follower is None:
        return "the leader does not count it among its followers yet", {}
    return _lag_of(follower, leader), _lag_evidence(follower, leader)


def _lag_of(follower: FollowerReport, leader: ReplicaReport) -> str:
    """Return a clause about how far the follower has come, and whether it is in sync or about to be."""
    if not follower.registered:
        return "the leader has not heard that it is registered"
    if follower.log_end_offset < 0:
        return f"it has fetched nothing in leader epoch {leader.leader_epoch}: it may still align or open its log"
    lag = max(0, leader.log_end_offset - follower.log_end_offset)
    behind = f"{count_of(lag, 'record')} behind"
    limit = f"(limit {format_duration(leader.max_lag_ms)})"
    if follower.fetched_ago_ms > leader.max_lag_ms:
        return f"it is {behind} and last fetched {format_duration(follower.fetched_ago_ms)} ago {limit}"
    level = f"last level with the leader {_ago(follower.caught_up_ago_ms)} {limit}"
    if follower.broker_id in leader.isr:
        return f"it is in sync, {behind}, and was {level}"
    if lag and follower.log_end_offset < leader.high_watermark:
        return f"it is catching up: it is {behind}, and was {level}"
    reached = f"it has reached the high watermark, {behind} the leader" if lag else "it has caught up with the leader"
    if follower.broker_id in leader.proposed_isr:
        return f"{reached}; ZooKeeper has not confirmed the new ISR yet"
    return f"{reached}; it is about to join the ISR"


def _lag_evidence(follower: FollowerReport, leader: ReplicaReport) -> dict[str, Any]:
    has_fetched = follower.log_end_offset >= 0
    return {
        "registered": follower.registered,
        "log_end_offset": follower.log_end_offset if has_fetched else None,
        "lag": max(0, leader.log_end_offset - follower.log_end_offset) if has_fetched else None,
        "caught_up_ago_ms": follower.caught_up_ago_ms if has_fetched else None,
        "fetched_ago_ms": follower.fetched_ago_ms if has_fetched else None,
        "max_lag_ms": leader.max_lag_ms,
    }


def _in_sync_count(leader: ReplicaReport) -> int:
    return min(len(leader.isr), len(leader.proposed_isr)) if leader.proposed_isr else len(leader.isr)


def _needed(leader: ReplicaReport) -> int:
    return min(leader.min_insync_replicas, len(leader.replicas))


def _min_isr(leader: ReplicaReport) -> Iterator[Finding]:
    needed, there = _needed(leader), _in_sync_count(leader)
    evidence = {"min_insync_replicas": leader.min_insync_replicas, "in_sync": there, "replicas": len(leader.replicas)}
    if there < needed:
        sentence = f"{there} of {needed} needed replicas are in sync (min.insync.replicas): acks=all is refused"
        yield Finding(MIN_ISR, True, sentence, evidence)
    elif leader.min_insync_replicas > len(leader.replicas):
        sentence = (
            f"min.insync.replicas is {leader.min_insync_replicas}, and there are {len(leader.replicas)} replicas:"
            " all of them are asked for"
        )
        yield Finding(MIN_ISR, False, sentence, evidence)


# --- visibility to consumers ----------------------------------------------------------------------------


def _visibility(leader_id: int, leader: ReplicaReport) -> Iterator[Finding]:
    mark, end = leader.high_watermark, leader.log_end_offset
    if mark < leader.epoch_start_offset:
        sentence = (
            f"the leader does not know yet how far the log was committed before its epoch {leader.leader_epoch}:"
            f" the high watermark is {mark}, the epoch began at {leader.epoch_start_offset}; look-ups of the end wait"
        )
        known = {"high_watermark": mark, "epoch_start_offset": leader.epoch_start_offset}
        yield Finding(HIGH_WATERMARK, _in_sync_count(leader) < _needed(leader), sentence, known)
    if mark >= end:
        return
    reasons, since_ms = _why_held(leader_id, leader)
    which = f"offset {mark} is" if end == mark + 1 else f"offsets {mark} to {end - 1} are"
    hidden = f"{which} in the log of broker {leader_id} and invisible to consumers"
    evidence = {"high_watermark": mark, "log_end_offset": end, "records": end - mark}
    if since_ms is not None:
        evidence["held_for_ms"] = since_ms
    if since_ms is not None and since_ms <= IN_FLIGHT_MS:
        yield Finding(VISIBILITY, False, f"{hidden} yet: {'; '.join(reasons)}", evidence)
        return
    yield Finding(HIGH_WATERMARK, True, f"it stands at {mark}: {'; '.join(reasons)}", evidence)
    yield Finding(VISIBILITY, True, f"{hidden}, since the high watermark stands still", evidence)


def _why_held(leader_id: int, leader: ReplicaReport) -> tuple[list[str], int | None]:
    """Return what holds the high watermark back, and for how long (ms); None: not known."""
    if _in_sync_count(leader) < _needed(leader):
        return ["fewer replicas are in sync than min.insync.replicas asks for"], None
    reasons, since_ms = [], 0
    members = {*leader.isr, *leader.proposed_isr}
    for follower in leader.followers:
        joining = follower.registered and 0 <= follower.caught_up_ago_ms <= leader.max_lag_ms
        if follower.log_end_offset > leader.high_watermark or not (follower.broker_id in members or joining):
            continue
        role = "a member of the ISR" if follower.broker_id in members else "about to join the ISR"
        reasons.append(f"it waits for broker {follower.broker_id}, {role}: {_lag_of(follower, leader)}")
        since_ms = max(since_ms, follower.caught_up_ago_ms if follower.log_end_offset >= 0 else IN_FLIGHT_MS + 1)
    if 0 <= leader.synced_end <= leader.high_watermark:
        reasons.append(f"the disk of broker {leader_id} has synced it up to {leader.synced_end} only")
    return reasons or ["nothing holds it any more"], since_ms


# --- retention ------------------------------------------------------------------------------------------


def _segments(broker_id: int, now_ms: int, replica: ReplicaReport, held: RetentionReport) -> Iterator[Finding]:
    oldest = held.oldest
    if oldest is None or not held.size_bytes:
        return
    what = f"{count_of(held.segments, 'segment')}, {format_size(held.size_bytes)}"
    span = f"offsets {replica.log_start_offset} to {oldest.end_offset - 1}"
    age_ms = now_ms - oldest.last_write_ms
    age = format_duration(age_ms)
    evidence = {
        "broker": broker_id,
        "segments": held.segments,
        "size_bytes": held.size_bytes,
        "deletable_segments": held.deletable,
        "retention_ms": held.retention_ms,
        "retention_bytes": held.retention_bytes,
        "oldest_end_offset": oldest.end_offset,
        "oldest_largest_timestamp": oldest.largest_timestamp,
        "oldest_age_ms": age_ms,
    }
    overdue_ms = age_ms - held.retention_ms

    def finding(problem: bool, why: str) -> Finding:
        return Finding(SEGMENTS, problem, f"broker {broker_id} keeps {what}: {why}", evidence)

    expired = held.deletes and held.retention_ms >= 0 and overdue_ms > 0
    future_ms = oldest.largest_timestamp - now_ms
    if held.deletes and future_ms > 0 and held.retention_ms >= 0:
        yield finding(
            True,
            f"the oldest ({span}) has a record that claims to be {format_duration(future_ms)} in the future;"
            f" its file's time counts instead, {age} ago (retention.ms is {format_duration(held.retention_ms)})",
        )
    elif expired and oldest.end_offset > replica.high_watermark:
        yield finding(
            True,
            f"the oldest ({span}) is past retention.ms by {format_duration(overdue_ms)}, and holds records"
            f" above the high watermark {replica.high_watermark}, which must not go",
        )
    elif expired and overdue_ms > _CHECKS_TIME_LIMIT * held.check_interval_ms:
        yield finding(
            True,
            f"the oldest ({span}) is past retention.ms by {format_duration(overdue_ms)} and should be gone:"
            f" see the log of broker {broker_id}",
        )
    elif held.deletable:
        soon = f"within {format_duration(held.check_interval_ms)} (log_retention_check_interval_ms)"
        yield finding(False, f"{count_of(held.deletable, 'segment')} may go, and will at the next check, {soon}")
    elif not held.deletes:
        yield finding(False, "cleanup.policy is compact, so that nothing goes by age or size")
    elif held.retention_ms < 0 and held.retention_bytes < 0:
        yield finding(False, "retention.ms and retention.bytes are −1, so that nothing ever goes")
    elif held.retention_ms >= 0:
        kept = f"{format_duration(held.retention_ms)} (retention.ms)"
        yield finding(False, f"the youngest record of the oldest ({span}) is {age} old, and goes after {kept}")
    else:
        yield finding(False, f"retention.bytes is {format_size(held.retention_bytes)}")


# --- formatting -----------------------------------------------------------------------------------------


def _names(brokers: Collection[int]) -> str:
    return ", ".join(map(str, brokers)) or "(none)"


def _brokers(brokers: Collection[int]) -> str:
    return f"{plural(len(brokers), 'broker')} {_names(brokers)}"


def _ago(ms: int) -> str:
    return "never" if ms < 0 else f"{format_duration(ms)} ago"
