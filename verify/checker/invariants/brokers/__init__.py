"""Invariants of brokers: ISR, leadership, high watermarks, committed offsets, availability and resources."""
