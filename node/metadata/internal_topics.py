"""Rules that protect the internal topics from clients.

`__consumer_offsets` is the only internal topic. Group coordinators keep committed offsets and group members there. A
broker refuses every request that would destroy these records, or stop a coordinator from writing more, whichever client
sends it. No request overrides a rule. The limits come from the settings file of the broker that judges the request, and
from other settings of the topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from node.settings.broker_settings import BrokerSettings
from storage.configs.log_config import LogConfig
from storage.configs.parsers import INT64_MAX
from tidelog.errors import InvalidPartitionsError, InvalidTopicError, PolicyViolationError
from tidelog.frozen_dataclass import frozen
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.model import TopicPartition

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC})


def is_internal(topic: str) -> bool:
    """Return whether the topic is internal (`__consumer_offsets`), so that only brokers may write to it."""
    return topic in INTERNAL_TOPICS


def check_produce(topic: str) -> None:
    """Raise InvalidTopicError if the topic is internal, because clients may not produce to it."""
    if is_internal(topic):
        raise InvalidTopicError(
            f"topic {topic!r}: clients may not produce to it, because only coordinators write there"
        )


def check_record_deletion(topic: str) -> None:
    """Raise InvalidTopicError if the topic is internal, because clients may not delete its records."""
    if is_internal(topic):
        raise InvalidTopicError(
            f"topic {topic!r}: its records may not be deleted, because they are the committed offsets of all groups"
        )


def check_deletion(topic: str) -> None:
    """Raise PolicyViolationError if the topic is internal, because clients may not delete it."""
    if is_internal(topic):
        raise PolicyViolationError(
            f"topic {topic!r}: it may not be deleted, because it holds the committed offsets of all groups"
        )


def check_new_partitions(topic: str) -> None:
    """Raise InvalidPartitionsError if the topic is internal, because its number of partitions must stay as it is."""
    if is_internal(topic):
        raise InvalidPartitionsError(
            f"topic {topic!r}: the number of partitions may not change, because it decides each group's coordinator"
        )


@frozen
class InternalTopicRules:
    """The limits of one broker for the settings and the replicas of internal topics.

    Methods accept every request for another topic.

    replication_factor   the fewest replicas that a client may ask for
    segment_bytes        segment.bytes with which coordinators create the topic
    defaults             the broker's own defaults of the topic settings
    """

    replication_factor: int
    segment_bytes: int
    defaults: LogConfig

    @classmethod
    def of(cls, settings: BrokerSettings) -> Self:
        """Return the rules of a broker with these settings."""
        return cls(
            settings.offsets_topic_replication_factor, settings.offsets_topic_segment_bytes, settings.topic_defaults
        )

    def creation_configs(self) -> dict[str, str]:
        """Return the settings with which coordinators create the topic; `check_configs` accepts them."""
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.segment_bytes),
        }

    def check_creation(self, topic: str, configs: Mapping[str, str], partitions: Mapping[int, Sequence[int]]) -> None:
        """Raise PolicyViolationError if an internal topic of these settings and replicas may lose committed offsets."""
        if not is_internal(topic):
            return
        fewest = min(map(len, partitions.values()))
        if fewest < self.replication_factor:
            raise PolicyViolationError(
                f"topic {topic!r}: replication factor {fewest}: must be at least {self.replication_factor} "
                "(offsets_topic_replication_factor of the brokers)"
            )
        self.check_configs(topic, configs, fewest)

    def check_configs(self, topic: str, configs: Mapping[str, str], replicas: int | None) -> None:
        """Raise PolicyViolationError if the topic's own settings `configs` endanger committed offsets.

        The broker's defaults stand for settings that are left out. `replicas` is the smallest number of replicas of any
        partition, or None if it is unknown.
        """
        if is_internal(topic):
            for violation in self._violations(LogConfig.from_topic_configs(configs, self.defaults), replicas):
                raise PolicyViolationError(f"topic {topic!r}: {violation}")

    def check_reassignment(
        self, tp: TopicPartition, configs: Mapping[str, str], current: Sequence[int], wanted: Sequence[int]
    ) -> None:
        """Raise PolicyViolationError if the partition would have fewer replicas than now, and fewer than the minimum.

        The minimum is `replication_factor`, or the topic's min.insync.replicas if that is larger.

        A partition that already has too few replicas may move to the same number of other brokers.
        """
        if not is_internal(tp.topic) or len(wanted) >= len(current):
            return
        min_insync = LogConfig.from_valid_topic_configs(configs, self.defaults).min_insync_replicas
        least, setting = max(
            (self.replication_factor, "offsets_topic_replication_factor of the brokers"),
            (min_insync, "min.insync.replicas of the topic"),
        )
        if len(wanted) < least:
            raise PolicyViolationError(f"{tp}: replication factor {len(wanted)}: must be at least {least} ({setting})")

    def _violations(self, config: LogConfig, replicas: int | None) -> Iterator[str]:
        """Yield, for each setting that endangers committed offsets, its value, the allowed values, and the reason.

        `replicas` is the smallest number of replicas of any partition. With None, the upper limit of
        min.insync.replicas is not checked.
        """
        defaults, texts = self.defaults, config.to_topic_configs()
        least_segment_bytes = min(self.segment_bytes, config.max_message_bytes)
        least_in_sync = defaults.min_insync_replicas
        rules: Sequence[tuple[str, bool, str]] = (
            (
                "cleanup.policy",
                config.cleanup_policy != {"compact"},
                "compact, because retention deletes committed offsets",
            ),
            (
                "compression.type",
                config.compression_type != "producer",
                "producer, because coordinators choose the codec themselves",
            ),
            (
                "unclean.leader.election.enable",
                config.unclean_leader_election_enable and not defaults.unclean_leader_election_enable,
                "false, because an unclean election loses committed offsets",
            ),
            (
                "retention.ms",
                _limit(config.retention_ms) < _limit(defaults.retention_ms),
                f"at least {defaults.retention_ms}, {_IF_DELETED}",
            ),
            (
                "retention.bytes",
                _limit(config.retention_bytes) < _limit(defaults.retention_bytes),
                f"at least {defaults.retention_bytes}, {_IF_DELETED}",
            ),
            (
                "delete.retention.ms",
                config.delete_retention_ms < defaults.delete_retention_ms,
                f"at least {defaults.delete_retention_ms}, because a replica that misses a tombstone brings deleted "
                "offsets back",
            ),
            (
                "max.message.bytes",
                config.max_message_bytes < defaults.max_message_bytes,
                f"at least {defaults.max_message_bytes}, because a coordinator writes each commit as one batch",
            ),
            (
                "segment.bytes",
                config.segment_bytes < least_segment_bytes,
                f"at least {least_segment_bytes}, because each batch must fit into a segment",
            ),
            (
                "min.insync.replicas",
                config.min_insync_replicas < least_in_sync,
                f"at least {least_in_sync}, because fewer replicas may lose acknowledged commits",
            ),
            (
                "min.insync.replicas",
                replicas is not None and config.min_insync_replicas > max(replicas, least_in_sync),
                f"at most {replicas}, because no commit succeeds with fewer replicas in sync",
            ),
        )
        for setting, is_violated, must in rules:
            if is_violated:
                yield f"{setting}={texts[setting]}: must be {must}"


_IF_DELETED = "because committed offsets must outlive any change of cleanup.policy"


def _limit(setting: int) -> int:
    """Return a retention limit as a number that can be compared; a negative setting means no limit."""
    return INT64_MAX if setting < 0 else setting
