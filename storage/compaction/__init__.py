"""Compaction: of each key the last record stays. What may go, and how a segment takes the place of others."""
