"""The settings of topics: how they are read, changed and told, and what brokers say for those that say nothing."""
