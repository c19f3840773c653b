"""The code that is fuzzed: frames, files, records, groups and settings."""
