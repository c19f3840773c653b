"""Segments, of which a log is made: their batches, their indexes, their files, and the row of them."""
