"""The clients for asyncio programs; names and settings as in `tidelog`."""

from tidelog.aio.admin import Admin
from tidelog.aio.consumer import Consumer
from tidelog.aio.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]
