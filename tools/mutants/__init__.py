"""Known bugs that are kept as patches, so that it can be seen whether the tests would find them."""
