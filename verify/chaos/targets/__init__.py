"""The clusters that chaos can break: processes of this machine and containers."""
