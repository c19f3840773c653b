"""Define the requests of clients about settings, about the deletion of records, and about log directories.

The form is that of `tidelog.protocol.messages`.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum

from tidelog.frozen_dataclass import frozen, since
from tidelog.protocol.messages import ApiKey, DescribePartition, Message, Request, Response


class ConfigResourceType(IntEnum):
    """The kind of resource that has settings, with Kafka's numbers; brokers reject all others with INVALID_REQUEST."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """The source of a setting's value, with Kafka's numbers; the source with the smaller number takes precedence."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class ConfigType(IntEnum):
    """The type of a setting's value, with Kafka's numbers. The value itself is always sent as text."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigOp(IntEnum):
    """The change of a setting. DELETE restores the default.

    APPEND and SUBTRACT apply to list settings only. Their value is a comma-separated list of the elements.
    """

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# --- DescribeConfigs ---------------------------------------------------------------------------------


@frozen
class ConfigQuery(Message):
    """One resource whose settings are requested. `resource_type` is a ConfigResourceType.

    `resource_name` is a topic's name, or a broker's id as text ("": the common settings of all brokers). `keys` None
    requests all settings; unknown keys are ignored.
    """

    resource_type: int
    resource_name: str
    keys: tuple[str, ...] | None = None


@frozen
class ConfigSynonym(Message):
    """A name under which the setting has a value: its value there, and its ConfigSource."""

    name: str
    value: str | None
    source: int


@frozen
class ConfigEntry(Message):
    """One setting: its value as text, the ConfigSource of the value, and the ConfigType. A sensitive value is None.

    `synonyms` are all values from which `value` was chosen, by precedence; empty if not requested. `documentation`
    explains the setting; None if not requested.
    """

    name: str
    value: str | None
    source: int
    config_type: int
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


@frozen
class DescribedConfigs(Message):
    """The requested settings of one resource, or the error that explains why there are none."""

    resource_type: int
    resource_name: str
    error_code: int
    error_message: str | None = None
    entries: tuple[ConfigEntry, ...] = ()


@frozen
class DescribeConfigsResponse(Response):
    """The answer, with one entry for each resource of the request, in order."""

    resources: tuple[DescribedConfigs, ...]


@frozen
class DescribeConfigsRequest(Request):
    """Describes settings. Any broker describes those of a topic, and those of all brokers together.

    The settings of one broker are described by that broker alone.
    """

    resources: tuple[ConfigQuery, ...]
    include_synonyms: bool = False
    include_documentation: bool = False

    api = ApiKey.DESCRIBE_CONFIGS
    response = DescribeConfigsResponse


# --- IncrementalAlterConfigs -------------------------------------------------------------------------


@frozen
class ConfigChange(Message):
    """The change of one setting.

    `operation` is a ConfigOp; `value` is required, except for DELETE, which ignores it.

    Example:

        change = ConfigChange("cleanup.policy", "compact", ConfigOp.APPEND)
        admin.alter_configs({ConfigResource.topic("payments"): [change]})
    """

    name: str
    value: str | None = None
    operation: int = ConfigOp.SET


@frozen
class ConfigAlteration(Message):
    """The changes of one resource, which take effect together or not at all."""

    resource_type: int
    resource_name: str
    changes: tuple[ConfigChange, ...]


@frozen
class AlteredConfigs(Message):
    """The outcome for one resource. With an error, none of its settings has changed."""

    resource_type: int
    resource_name: str
    error_code: int
    error_message: str | None = None


@frozen
class IncrementalAlterConfigsResponse(Response):
    """The answer, with one entry for each resource of the request, in order."""

    resources: tuple[AlteredConfigs, ...]


@frozen
class IncrementalAlterConfigsRequest(Request):
    """Changes settings of topics, of the broker that is asked, or of all brokers (an empty name).

    Any broker may be asked about topics and all brokers. A broker writes the changes to ZooKeeper. For a topic it waits
    at most half a second until the controller has sent them to it. `validate_only` checks the changes without making
    them.
    """

    resources: tuple[ConfigAlteration, ...]
    validate_only: bool = False

    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    response = IncrementalAlterConfigsResponse


# --- AlterConfigs ------------------------------------------------------------------------------------


@frozen
class ReplacedConfigs(Message):
    """All own settings that a resource has afterwards."""

    resource_type: int
    resource_name: str
    configs: dict[str, str]


@frozen
class AlterConfigsResponse(Response):
    """The answer, with one entry for each resource of the request, in order."""

    resources: tuple[AlteredConfigs, ...]


@frozen
class AlterConfigsRequest(Request):
    """Replaces all own settings of each resource in one write. Otherwise as IncrementalAlterConfigs.

    A setting that another client adds just before is lost. Therefore clients that change single settings send
    IncrementalAlterConfigs (KIP-339).
    """

    resources: tuple[ReplacedConfigs, ...]
    validate_only: bool = False

    api = ApiKey.ALTER_CONFIGS
    response = AlterConfigsResponse


# --- DeleteRecords -----------------------------------------------------------------------------------


@frozen
class DeleteRecordsPartition(Message):
    """One partition whose records below `offset` are deleted; −1 means all records below the high watermark."""

    topic: str
    partition: int
    offset: int


@frozen
class DeletedRecords(Message):
    """The outcome for one partition. `low_watermark` is the smallest log start offset of all live replicas.

    `low_watermark` is also set with REQUEST_TIMED_OUT, unless a live replica has not reported its log start offset;
    with every other error it is −1.
    """

    topic: str
    partition: int
    error_code: int
    low_watermark: int = -1
    error_message: str | None = None


@frozen
class DeleteRecordsResponse(Response):
    """The answer, with one entry for each partition of the request, in order."""

    partitions: tuple[DeletedRecords, ...]


@frozen
class DeleteRecordsRequest(Request):
    """Deletes records; sent to the partitions' leader.

    The answer comes when every live replica has raised its log start offset, or after `timeout_ms`. A partition whose
    leader epoch ends before gets NOT_LEADER_OR_FOLLOWER. A partition whose replicas have not followed in time gets
    REQUEST_TIMED_OUT. In both cases its leader has deleted the records.
    """

    partitions: tuple[DeleteRecordsPartition, ...]
    timeout_ms: int

    api = ApiKey.DELETE_RECORDS
    response = DeleteRecordsResponse


# --- DescribeLogDirs ---------------------------------------------------------------------------------


@frozen
class LogDirReplica(Message):
    """One partition's log in a log directory.

    `offset_lag` is how far the log ends before the high watermark that this broker knows; 0 if it ends at or after it.
    A future log is being filled because its replica moves to this directory. Its `offset_lag` is how far it ends before
    the replica's log.
    """

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool = field(default=False, metadata=since(1))


@frozen
class LogDir(Message):
    """One log directory and the requested logs in it. With an error the directory is offline, and has no replicas.

    `total_bytes` and `usable_bytes` are the size and the free space of the disk; −1 if they cannot be read, or if any
    disk of the broker does not answer in time.
    """

    path: str
    error_code: int
    error_message: str | None = None
    replicas: tuple[LogDirReplica, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1


@frozen
class DescribeLogDirsResponse(Response):
    """All log directories of the answering broker."""

    log_dirs: tuple[LogDir, ...]


@frozen
class DescribeLogDirsRequest(Request):
    """Describes the log directories of the addressed broker. `partitions` None requests all logs in them.

    Partitions without a log on the broker are left out of the answer without an error.
    """

    partitions: tuple[DescribePartition, ...] | None = None

    api = ApiKey.DESCRIBE_LOG_DIRS
    response = DescribeLogDirsResponse
    versions = (0, 1)


# --- AlterReplicaLogDirs -----------------------------------------------------------------------------


@frozen
class ReplicaLogDir(Message):
    """The absolute path of the log directory in which the broker's replica of a partition should be."""

    topic: str
    partition: int
    log_dir: str


@frozen
class ReplicaLogDirResult(Message):
    """Whether the move of one replica has begun, or is not needed."""

    topic: str
    partition: int
    error_code: int
    error_message: str | None = None


@frozen
class AlterReplicaLogDirsResponse(Response):
    """One result for each named replica, in the order of the request."""

    results: tuple[ReplicaLogDirResult, ...]


@frozen
class AlterReplicaLogDirsRequest(Request):
    """Moves replicas between the log directories of one broker (KIP-113), which answers when the moves have begun.

    A path that is no log directory of the broker has LOG_DIR_NOT_FOUND, and a directory or a replica that is offline
    has KAFKA_STORAGE_ERROR. If the broker has no replica of the partition, it answers REPLICA_NOT_AVAILABLE, remembers
    the directory until it stops, and creates a later replica there. A move to the directory in which the log already
    lies ends a move to another one.
    """

    replicas: tuple[ReplicaLogDir, ...]

    api = ApiKey.ALTER_REPLICA_LOG_DIRS
    response = AlterReplicaLogDirsResponse


#: Every request of this module.
ADMIN_REQUESTS: tuple[type[Request], ...] = (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    AlterConfigsRequest,
    DeleteRecordsRequest,
    DescribeLogDirsRequest,
    AlterReplicaLogDirsRequest,
)
