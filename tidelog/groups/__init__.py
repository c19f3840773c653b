"""What coordinators, members and tools share about consumer groups. All bytes are Kafka's."""
