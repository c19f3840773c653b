"""What clients may ask about settings, records to be deleted, and disks.

Messages as in `tidelog.protocol.messages`.
"""

from __future__ import annotations

from enum import IntEnum

from tidelog.frozen_dataclass import frozen
from tidelog.protocol.messages import ApiKey, DescribePartition, Message, Request, Response


class ConfigResourceType(IntEnum):
    """Whose settings are meant."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where a setting's value comes from, the stronger one first."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class ConfigType(IntEnum):
    """How the text of a setting is read."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigOp(IntEnum):
    """What to do with a setting. APPEND and SUBTRACT are for lists, and take one."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# --- DescribeConfigs ---------------------------------------------------------------------------------


@frozen
class ConfigQuery(Message):
    """`resource_type` is a ConfigResourceType, the name a topic's or a broker id; `keys` None asks for all."""

    resource_type: int
    resource_name: str
    keys: tuple[str, ...] | None = None


@frozen
class ConfigSynonym(Message):
    """A name under which a setting could be given, and its value there."""

    name: str
    value: str | None
    source: int


@frozen
class ConfigEntry(Message):
    """One setting: its value as text, a ConfigSource and a ConfigType; a sensitive one's value is None.

    `synonyms` hold what the value was chosen from, the strongest first; `documentation` says what it means.
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
    """One entry for each resource of the request, in its order."""

    resources: tuple[DescribedConfigs, ...]


@frozen
class DescribeConfigsRequest(Request):
    """A broker's settings are told by that broker alone, a topic's by any."""

    resources: tuple[ConfigQuery, ...]
    include_synonyms: bool = False
    include_documentation: bool = False

    api = ApiKey.DESCRIBE_CONFIGS
    response = DescribeConfigsResponse


# --- IncrementalAlterConfigs -------------------------------------------------------------------------


@frozen
class ConfigChange(Message):
    """One setting's change. `operation` is a ConfigOp; DELETE takes no value."""

    name: str
    value: str | None = None
    operation: int = ConfigOp.SET


@frozen
class ConfigAlteration(Message):
    """The changes of one resource, all or none of which take effect."""

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
    """One entry for each resource of the request, in its order."""

    resources: tuple[AlteredConfigs, ...]


@frozen
class IncrementalAlterConfigsRequest(Request):
    """Any broker answers, once it is written and obeyed there; the others learn it from the controller meanwhile."""

    resources: tuple[ConfigAlteration, ...]
    validate_only: bool = False

    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    response = IncrementalAlterConfigsResponse


# --- DeleteRecords -----------------------------------------------------------------------------------


@frozen
class DeleteRecordsPartition(Message):
    """All records below `offset` are to go; −1 is the high watermark."""

    topic: str
    partition: int
    offset: int


@frozen
class DeletedRecords(Message):
    """`low_watermark`: the smallest log start offset of all live replicas."""

    topic: str
    partition: int
    error_code: int
    low_watermark: int = -1
    error_message: str | None = None


@frozen
class DeleteRecordsResponse(Response):
    """One entry for each partition of the request, in its order."""

    partitions: tuple[DeletedRecords, ...]


@frozen
class DeleteRecordsRequest(Request):
    """To each partition's leader. Answered when every live replica's log begins there, else REQUEST_TIMED_OUT."""

    partitions: tuple[DeleteRecordsPartition, ...]
    timeout_ms: int

    api = ApiKey.DELETE_RECORDS
    response = DeleteRecordsResponse


# --- DescribeLogDirs ---------------------------------------------------------------------------------


@frozen
class LogDirReplica(Message):
    """One log in a directory. `offset_lag`: how far it ends before what its broker knows to be committed."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int


@frozen
class LogDir(Message):
    """One log directory; −1 where its disk does not tell how large it is and how much is free."""

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
    """To each broker; `partitions` None asks for all that it has."""

    partitions: tuple[DescribePartition, ...] | None = None

    api = ApiKey.DESCRIBE_LOG_DIRS
    response = DescribeLogDirsResponse


#: Every request in here.
ADMIN_REQUESTS: tuple[type[Request], ...] = (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    DeleteRecordsRequest,
    DescribeLogDirsRequest,
)
