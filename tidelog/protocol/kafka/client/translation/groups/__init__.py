"""The translations of groups: membership, committed offsets, and administration."""
