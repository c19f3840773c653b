"""The consumer: positions, fetches and look-ups by time. Start with `fetching/`."""
