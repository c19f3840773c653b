"""`python -P -m node.settings FILE…`: check the settings of a broker without starting it."""

from __future__ import annotations

import sys
from pathlib import Path

from node.settings.broker_settings import BrokerSettings
from tidelog.errors import ConfigError


def main() -> int:
    """Return 0 if the settings in these files are valid. Otherwise print the reason to standard error and return 1."""
    try:
        BrokerSettings.load(*map(Path, sys.argv[1:]))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
