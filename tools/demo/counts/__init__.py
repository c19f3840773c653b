"""The counts per minute: computed plainly, and read from the files that Spark wrote."""
