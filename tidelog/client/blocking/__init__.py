"""Run the asyncio clients on one I/O thread behind the synchronous ones. Start with `blocking_client.py`."""
