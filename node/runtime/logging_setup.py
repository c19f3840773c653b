"""Where a broker's process writes what it does."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler

from node.settings import BrokerSettings
from tidelog.errors import ConfigError

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
_KAZOO = "kazoo"
_KAZOO_SILENCE_S = 60.0
_MOST_REMEMBERED = 100


def log_to(settings: BrokerSettings) -> None:
    """Sets the process's log up; ConfigError where its file cannot be written."""
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
    """Of what kazoo repeats, one line in a minute and no stack.

    It tells of each attempt to connect, twice a second for as long as ZooKeeper is away: within hours the rotation
    would have dropped what the broker itself had to say.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] != _KAZOO:
            return True
        record.exc_info = record.exc_text = None
        what = str(record.msg)
        if record.created - self._said.get(what, -_KAZOO_SILENCE_S) < _KAZOO_SILENCE_S:
            return False
        if len(self._said) >= _MOST_REMEMBERED:
            self._said.clear()
        self._said[what] = record.created
        return True
