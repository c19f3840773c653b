"""The main job, told by `scripts/demo`: real lines in, a leader killed on the way, a Spark job out, nothing lost."""
