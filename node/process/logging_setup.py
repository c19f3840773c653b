"""Set up the log of a broker's process."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler

from node.settings.broker_settings import BrokerSettings
from tidelog.errors import ConfigError

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
_KAZOO = "kazoo"
_KAZOO_PAUSE_S = 60.0
_MOST_REMEMBERED = 100


def log_to(settings: BrokerSettings) -> None:
    """Send the process's log to the file of the settings, or to standard error.

    Raise ConfigError if the file cannot be opened.
    """
    handler: logging.Handler
    if settings.log_file:
        try:
            handler = RotatingFileHandler(
                settings.log_file, maxBytes=settings.log_file_max_bytes, backupCount=settings.log_file_backups
            )
        except OSError as error:
            raise ConfigError(f"log_file: {settings.log_file} cannot be written: {error.strerror}") from None
    else:
        handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT, _TIME_FORMAT))
    handler.addFilter(RateLimitedKazooLog())
    logging.basicConfig(level=settings.log_level, handlers=[handler])
    logging.getLogger(_KAZOO).setLevel(logging.WARNING)


class RateLimitedKazooLog(logging.Filter):
    """Lets each distinct message of kazoo, whatever its arguments, through once a minute, without its stack.

    Kazoo logs each attempt to connect, twice a second while ZooKeeper is unavailable. Without this limit the rotation
    would drop the broker's own lines within hours.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged_at_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] != _KAZOO:
            return True
        record.exc_info = record.exc_text = None
        message = str(record.msg)
        if record.created - self._logged_at_s.get(message, -_KAZOO_PAUSE_S) < _KAZOO_PAUSE_S:
            return False
        if len(self._logged_at_s) >= _MOST_REMEMBERED:
            self._logged_at_s.clear()
        self._logged_at_s[message] = record.created
        return True
