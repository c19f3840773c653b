"""Consumer groups: who is in them, and what they have committed. Pure; the coordinator's node performs the effects."""
