"""The clusters under test: processes of this machine, and containers."""
