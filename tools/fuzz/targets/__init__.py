"""The readers that are fuzzed: frames, files, records, groups and settings."""
