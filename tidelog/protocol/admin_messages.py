"""Define the requests of clients about settings, deleted records and disks.

The form is that of `tidelog.protocol.messages`.
"""

from __future__ import annotations

from enum import IntEnum

from tidelog.frozen_dataclass import frozen
from tidelog.protocol.messages import ApiKey, DescribePartition, Message, Request, Response


class ConfigResourceType(IntEnum):
    """The kind of resource that has settings."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """The source of a setting's value; a smaller number takes precedence."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class ConfigType(IntEnum):
    """The type of a setting's value."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigOp(IntEnum):
    """The change of a setting. APPEND and SUBTRACT apply to list settings, and their value is a list."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# --- DescribeConfigs ---------------------------------------------------------------------------------


@frozen
class ConfigQuery(Message):
    """One resource: a ConfigResourceType, and a topic's name or a broker's id; `keys` None asks for all settings."""

    resource_type: int
    resource_name: str
    keys: tuple[str, ...] | None = None


@frozen
class ConfigSynonym(Message):
    """A name under which a setting can be given, and its value there."""

    name: str
    value: str | None
    source: int


@frozen
class ConfigEntry(Message):
    """One setting: its value as text, a ConfigSource and a ConfigType. A sensitive setting's value is None.

    `synonyms` hold the values from which the value was chosen, by precedence; `documentation` explains the setting.
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
    """The settings of one resource, by name."""

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
    """Describes settings; only the broker itself describes its own, any broker describes a topic's."""

    resources: tuple[ConfigQuery, ...]
    include_synonyms: bool = False
    include_documentation: bool = False

    api = ApiKey.DESCRIBE_CONFIGS
    response = DescribeConfigsResponse


# --- IncrementalAlterConfigs -------------------------------------------------------------------------


@frozen
class ConfigChange(Message):
    """The change of one setting. `operation` is a ConfigOp; DELETE takes no value."""

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
    """The outcome for one resource."""

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
    """Changes settings; any broker answers when it has applied them, the others learn of them from the controller."""

    resources: tuple[ConfigAlteration, ...]
    validate_only: bool = False

    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    response = IncrementalAlterConfigsResponse


# --- DeleteRecords -----------------------------------------------------------------------------------


@frozen
class DeleteRecordsPartition(Message):
    """One partition; all records below `offset` are deleted, and −1 means the high watermark."""

    topic: str
    partition: int
    offset: int


@frozen
class DeletedRecords(Message):
    """The outcome; `low_watermark` is the smallest log start offset of all live replicas."""

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
    """Deletes records; sent to each partition's leader.

    The answer comes when every live replica has applied the offset, else REQUEST_TIMED_OUT.
    """

    partitions: tuple[DeleteRecordsPartition, ...]
    timeout_ms: int

    api = ApiKey.DELETE_RECORDS
    response = DeleteRecordsResponse


# --- DescribeLogDirs ---------------------------------------------------------------------------------


@frozen
class LogDirReplica(Message):
    """One log in a directory. `offset_lag` is the distance from its end to the committed end that its broker knows."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int


@frozen
class LogDir(Message):
    """One log directory; a size is −1 if the disk does not report it."""

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
    """Describes log directories; sent to each broker. `partitions` None asks for all of its logs."""

    partitions: tuple[DescribePartition, ...] | None = None

    api = ApiKey.DESCRIBE_LOG_DIRS
    response = DescribeLogDirsResponse


#: Every request of this module.
ADMIN_REQUESTS: tuple[type[Request], ...] = (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    DeleteRecordsRequest,
    DescribeLogDirsRequest,
)
