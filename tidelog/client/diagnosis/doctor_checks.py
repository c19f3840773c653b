"""Check the health of a cluster: return one line with an advice for each thing that is checked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tidelog.model import NO_LEADER, Endpoint, TopicPartition
from tidelog.protocol.kafka.client.connected_broker import TIDELOG
from tidelog.protocol.messages import MetadataResponse
from tidelog.protocol.operator_messages import DescribeBrokerResponse, LogDirectoryReport
from tidelog.quantities import MOST_NAMED, count_of, first_of, format_count, format_duration, format_size

_MIB, _GIB = 1 << 20, 1 << 30
#: Free space below which a disk counts as full, or as nearly full.
_FULL_BYTES, _NEARLY_FULL_BYTES = 256 * _MIB, 20 * _GIB
_FULL_SHARE, _NEARLY_FULL_SHARE = 0.01, 0.1
#: The share of a limit (open files, connections, partitions) above which the doctor warns.
_USED_SHARE = 0.8
#: Log files get half of the open files of a broker, and the connections of clients most of the rest.
_FEW_FILES = 4_000
#: The part of the memory that is free. Below the second share, the system may end the broker at any time.
_LITTLE_MEMORY_SHARE, _NO_MEMORY_SHARE = 0.1, 0.02
#: Difference of two brokers' clocks. Look-ups by time and retention are reliable only below the first limit.
_SKEW_WARNING_MS, _SKEW_FAILURE_MS = 500, 600_000
_MOST_NAMED = 3


class State(Enum):
    """The severity of a check's result."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its result. `advice` says what to do; "" if there is nothing to do."""

    name: str
    state: State
    sentence: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """The answer of one address, or why there is none.

    report         None: there is no answer, and `refused` says why, or the broker is one of Kafka
    ahead_ms       the broker's wall clock minus this machine's, with an uncertainty of `uncertainty_ms`
    cluster_kind   "Tidelog", or which Kafka the broker belongs to; "" if there is no answer
    """

    endpoint: Endpoint
    report: DescribeBrokerResponse | None
    refused: str = ""
    ahead_ms: float = 0
    uncertainty_ms: float = 0
    cluster_kind: str = ""

    @property
    def is_foreign(self) -> bool:
        """Return whether the broker answers, and is not one of Tidelog."""
        return self.cluster_kind not in ("", TIDELOG)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The metadata of one broker, and the answers by target ("broker 1", or an address).

    metadata   None if no broker answered
    """

    metadata: MetadataResponse | None
    answers: Mapping[str, BrokerAnswer]


def examine_cluster(facts: ClusterFacts) -> list[Check]:
    """Return the results of all checks: brokers, partitions, disks, files, memory, ZooKeeper, clocks and versions.

    The first result names the kind of cluster. Checks whose facts are missing are left out; clocks and versions need
    two brokers. Of a cluster of Kafka only the controller and the partitions are checked.
    """
    reports = {name: answer.report for name, answer in facts.answers.items() if answer.report is not None}
    most = _max_partitions(facts.metadata, facts.answers)
    checks = list(_cluster_kind(facts.answers.values()))
    checks += (_broker(name, answer) for name, answer in facts.answers.items())
    if facts.metadata is not None:
        checks.append(_controller(facts.metadata))
        checks += _partitions(facts.metadata)
    for name, report in reports.items():
        checks += (_directory(f"{name}, disk", each) for each in report.log_directories)
        checks.append(_open_files(name, report))
        checks += _connections(name, report)
        checks += _held_partitions(name, report, most)
        checks += _memory(name, report)
        checks.append(_zookeeper_session(name, report))
    if len(reports) > 1:
        checks.append(_clocks([(name, answer) for name, answer in facts.answers.items() if answer.report]))
        checks.append(_versions(reports))
    return checks


def _cluster_kind(answers: Iterable[BrokerAnswer]) -> Iterator[Check]:
    kinds = sorted({answer.cluster_kind for answer in answers if answer.cluster_kind})
    if len(kinds) > 1:
        advice = "give the addresses of one cluster, unless it is being upgraded"
        yield Check("cluster", State.WARNING, f"the brokers are of several kinds: {', '.join(kinds)}", advice)
    elif kinds == [TIDELOG]:
        yield Check("cluster", State.OK, TIDELOG)
    elif kinds:
        yield Check("cluster", State.OK, f"{kinds[0]}: its disks, files and clocks are not checked")


def _broker(name: str, answer: BrokerAnswer) -> Check:
    report = answer.report
    if answer.is_foreign:
        return Check(name, State.OK, f"answers at {answer.endpoint}")
    if report is None:
        advice = "start it, or see its log; tidelog status shows the local ones"
        return Check(name, State.FAILURE, f"{answer.endpoint} does not answer: {answer.refused}", advice)
    if report.not_ready is not None:
        return Check(name, State.FAILURE, f"not ready: {report.not_ready}", "wait a moment, then see its log")
    up = f"up for {format_duration(report.uptime_ms)}"
    return Check(name, State.OK, f"ready at {answer.endpoint}, {count_of(report.partitions, 'replica')}, {up}")


def _controller(metadata: MetadataResponse) -> Check:
    if metadata.controller_id == NO_LEADER:
        return Check("controller", State.FAILURE, "none is elected", "see whether the brokers reach ZooKeeper")
    return Check("controller", State.OK, f"broker {metadata.controller_id}")


def _partitions(metadata: MetadataResponse) -> Iterator[Check]:
    unled, short, count = [], [], 0
    for topic in metadata.topics:
        for each in topic.partitions:
            count += 1
            tp = TopicPartition(topic.name, each.partition)
            if each.leader == NO_LEADER:
                unled.append(tp)
            elif len(each.isr) < len(each.replicas):
                short.append(tp)
    if unled:
        yield Check("partitions", State.FAILURE, f"{_named(unled)} without a leader", _explain(unled[0]))
    if short:
        yield Check("partitions", State.WARNING, f"{_named(short)} under-replicated", _explain(short[0]))
    if not unled and not short:
        yield Check("partitions", State.OK, f"{format_count(count)}, all led and in sync")


def _named(tps: Sequence[TopicPartition]) -> str:
    names = ", ".join(f"{tp.topic}/{tp.partition}" for tp in tps[:_MOST_NAMED])
    return f"{format_count(len(tps))} ({names}{', …' if len(tps) > _MOST_NAMED else ''})"


def _explain(tp: TopicPartition) -> str:
    return f"tidelog explain {tp.topic}/{tp.partition}"


def _directory(name: str, report: LogDirectoryReport) -> Check:
    if report.error:
        advice = "repair the disk, then start the broker again"
        return Check(name, State.FAILURE, f"{report.path} is offline: {report.error}", advice)
    return examine_disk(name, report)


def examine_disk(name: str, report: LogDirectoryReport) -> Check:
    """Check the free bytes and inodes of a directory's file system.

    A file system that reports 0 of 0 inodes has no limit of inodes.
    """
    free, total = report.free_bytes, report.total_bytes
    share = free / total if total > 0 else 1.0
    sentence = f"{format_size(free)} of {format_size(total)} are free below {report.path}"
    advice = "free disk space, or lower retention.ms or retention.bytes of large topics"
    if free < _FULL_BYTES:
        return Check(name, State.FAILURE, sentence, advice)
    if report.free_inodes < report.total_inodes * _NEARLY_FULL_SHARE:
        few = report.free_inodes < report.total_inodes * _FULL_SHARE
        state = State.FAILURE if few else State.WARNING
        of_all = f"{format_count(report.free_inodes)} of {count_of(report.total_inodes, 'inode')}"
        sentence = f"{of_all} are free below {report.path}"
        return Check(name, state, sentence, "remove small files, or take a file system with more inodes")
    if share < _NEARLY_FULL_SHARE and free < _NEARLY_FULL_BYTES:
        return Check(name, State.WARNING, sentence, advice)
    return Check(name, State.OK, sentence)


def _open_files(name: str, report: DescribeBrokerResponse) -> Check:
    limit, name = report.open_files_limit, f"{name}, files"
    most = f"at most {format_count(limit)}" if limit >= 0 else "any number"
    sentence = f"{format_count(report.open_files)} of {most} are open"
    if limit >= 0 and report.open_files > limit * _USED_SHARE:
        advice = (
            f"raise the limit to {format_count(2 * limit)} or more (ulimit -Hn, LimitNOFILE=): the broker closes log "
            "files and opens them again, which takes time"
        )
        return Check(name, State.WARNING, sentence, advice)
    return Check(name, State.OK, sentence)


def _connections(name: str, report: DescribeBrokerResponse) -> Iterator[Check]:
    held, most = report.connections, report.max_connections
    if held < 0 or most <= 0:
        return
    sentence = f"{format_count(held)} of at most {format_count(most)} connections of clients are open"
    name = f"{name}, clients"
    if held > most * _USED_SHARE:
        advice = (
            "close connections (tidelog clients shows them), or raise the limit of open files (ulimit -Hn, "
            "LimitNOFILE=) and max.connections: more connections are refused"
        )
        yield Check(name, State.WARNING, sentence, advice)
    else:
        yield Check(name, State.OK, sentence)


def _max_partitions(metadata: MetadataResponse | None, answers: Mapping[str, BrokerAnswer]) -> int | None:
    """Return how many partitions each broker may hold, which is the controller's setting; None if it is not known."""
    controller = answers.get(f"broker {metadata.controller_id}") if metadata else None
    report = controller.report if controller else None
    return report.max_partitions if report and report.max_partitions > 0 else None


def _held_partitions(name: str, report: DescribeBrokerResponse, most: int | None) -> Iterator[Check]:
    if most is None:
        return
    sentence = f"{format_count(report.partitions)} of at most {format_count(most)} are held (max.broker.partitions)"
    name = f"{name}, partitions"
    if report.partitions > most * _USED_SHARE:
        advice = (
            "delete topics, move partitions to other brokers (tidelog topic reassign), or raise max.broker.partitions: "
            "more partitions are refused at the limit"
        )
        yield Check(name, State.WARNING, sentence, advice)
    else:
        yield Check(name, State.OK, sentence)


def _memory(name: str, report: DescribeBrokerResponse) -> Iterator[Check]:
    free, total = report.free_memory_bytes, report.total_memory_bytes
    if free < 0 or total <= 0:
        return
    used = f"; the broker uses {format_size(report.memory_bytes)}" if report.memory_bytes >= 0 else ""
    sentence = f"{format_size(free)} of {format_size(total)} are free{used}"
    name = f"{name}, memory"
    advice = "stop other processes, add memory, or move partitions to other brokers (tidelog topic reassign)"
    if free < total * _NO_MEMORY_SHARE:
        yield Check(name, State.FAILURE, sentence, advice)
    elif free < total * _LITTLE_MEMORY_SHARE:
        yield Check(name, State.WARNING, sentence, advice)
    else:
        yield Check(name, State.OK, sentence)


def examine_file_limit(limit: int) -> Check:
    """Check the open-file limit (−1: none) of processes that are started from here."""
    sentence = f"a process may open {format_count(limit) if limit >= 0 else 'any number'}"
    if 0 <= limit < _FEW_FILES:
        return Check("files", State.WARNING, sentence, "raise it for brokers with many partitions (ulimit -Hn)")
    return Check("files", State.OK, sentence)


def _zookeeper_session(name: str, report: DescribeBrokerResponse) -> Check:
    silence_ms, timeout_ms = report.zookeeper_silence_ms, report.zookeeper_session_timeout_ms
    name = f"{name}, ZooKeeper"
    sentence = f"{report.zookeeper} confirmed something {format_duration(silence_ms)} ago"
    if silence_ms >= timeout_ms:
        advice = "check whether the ensemble runs, and the network to it"
        return Check(name, State.FAILURE, f"{sentence}, the session timeout is {format_duration(timeout_ms)}", advice)
    if silence_ms > timeout_ms / 2:
        return Check(name, State.WARNING, sentence, "check again; if it stays so, check the load of ZooKeeper")
    return Check(name, State.OK, sentence)


def _clocks(answers: Iterable[tuple[str, BrokerAnswer]]) -> Check:
    ordered = sorted(answers, key=lambda each: each[1].ahead_ms)
    (behind_name, behind), (ahead_name, ahead) = ordered[0], ordered[-1]
    skew_ms = ahead.ahead_ms - behind.ahead_ms
    uncertainty_ms = ahead.uncertainty_ms + behind.uncertainty_ms
    sure_ms = max(0.0, skew_ms - uncertainty_ms)
    if sure_ms <= _SKEW_WARNING_MS:
        return Check(
            "clocks", State.OK, f"the brokers' agree within {format_duration(round(skew_ms + uncertainty_ms))}"
        )
    state = State.FAILURE if sure_ms > _SKEW_FAILURE_MS else State.WARNING
    sentence = f"{ahead_name} is {format_duration(round(skew_ms))} ahead of {behind_name}"
    return Check("clocks", state, sentence, "let both follow an NTP server: retention and look-ups go by time")


def _versions(reports: Mapping[str, DescribeBrokerResponse]) -> Check:
    versions: dict[str, list[str]] = {}
    for name, report in reports.items():
        versions.setdefault(report.software_version, []).append(name)
    if len(versions) == 1:
        return Check("versions", State.OK, f"all brokers run tidelog {next(iter(versions))}")
    text = "; ".join(f"{version} on {first_of(names, MOST_NAMED)}" for version, names in sorted(versions.items()))
    return Check("versions", State.WARNING, text, "finish the upgrade, one broker after the other")
