"""A topic's settings after incremental changes."""

from __future__ import annotations

import pytest

from storage.configs.incremental_changes import changed
from storage.configs.log_config import LogConfig
from tidelog.errors import BrokerError, InvalidConfigError, InvalidRequestError
from tidelog.protocol.admin_messages import ConfigChange, ConfigOp

DEFAULTS = LogConfig()
APPEND, SUBTRACT, DELETE = ConfigOp.APPEND, ConfigOp.SUBTRACT, ConfigOp.DELETE


def test_settings_are_set_and_deleted_and_the_others_stay() -> None:
    before = {"retention.ms": "1000", "segment.bytes": "2000"}
    after = changed(before, [ConfigChange("flush.ms", "5"), ConfigChange("retention.ms", None, DELETE)], DEFAULTS)
    assert after == {"segment.bytes": "2000", "flush.ms": "5"}
    assert before == {"retention.ms": "1000", "segment.bytes": "2000"}


def test_a_list_is_appended_to_without_repetitions() -> None:
    both = {"cleanup.policy": "delete,compact"}
    assert changed({"cleanup.policy": "delete"}, [ConfigChange("cleanup.policy", "compact", APPEND)], DEFAULTS) == both
    assert changed(both, [ConfigChange("cleanup.policy", "compact, delete", APPEND)], DEFAULTS) == both


def test_append_to_a_missing_list_starts_from_the_broker_default() -> None:
    compacting = LogConfig.from_topic_configs({"cleanup.policy": "compact"})
    append = [ConfigChange("cleanup.policy", "delete", APPEND)]
    assert changed({}, append, compacting) == {"cleanup.policy": "compact,delete"}
    assert changed({}, append, DEFAULTS) == {"cleanup.policy": "delete"}


def test_items_are_taken_out_of_a_list() -> None:
    both = {"cleanup.policy": "compact,delete"}
    assert changed(both, [ConfigChange("cleanup.policy", "delete", SUBTRACT)], DEFAULTS) == {
        "cleanup.policy": "compact"
    }
    assert changed(both, [ConfigChange("cleanup.policy", "none", SUBTRACT)], DEFAULTS) == both


def test_unknown_setting_of_a_topic_can_be_deleted() -> None:
    assert changed({"of.tomorrow": "1"}, [ConfigChange("of.tomorrow", None, DELETE)], DEFAULTS) == {}


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (ConfigChange("retention", "1"), InvalidConfigError, r"'retention' \(did you mean retention\.ms\?\)"),
        (ConfigChange("retentoin.ms", None, DELETE), InvalidConfigError, "retention.ms"),
        (ConfigChange("retention.ms", "soon"), InvalidConfigError, "retention.ms=soon: must be a whole number"),
        (ConfigChange("cleanup.policy", "delete", SUBTRACT), InvalidConfigError, "cleanup.policy=: must be"),
        (ConfigChange("retention.ms", "1", APPEND), InvalidConfigError, "retention.ms: not a list"),
        (ConfigChange("retention.ms", None), InvalidRequestError, "retention.ms: the change has no value"),
        (ConfigChange("cleanup.policy", None, APPEND), InvalidRequestError, "cleanup.policy: the change has no value"),
        (ConfigChange("retention.ms", "1", 9), InvalidRequestError, "retention.ms: unknown operation 9"),
        (ConfigChange("min.compaction.lag.ms", "5"), InvalidConfigError, "min.compaction.lag.ms=5 is more than"),
    ],
)
def test_error_names_the_wrong_setting(change: ConfigChange, error: type[BrokerError], says: str) -> None:
    with pytest.raises(error, match=says):
        changed({"max.compaction.lag.ms": "4"}, [change], DEFAULTS)


def test_one_setting_is_changed_once() -> None:
    with pytest.raises(InvalidRequestError, match="changed twice"):
        changed({}, [ConfigChange("flush.ms", "1"), ConfigChange("flush.ms", None, DELETE)], DEFAULTS)
