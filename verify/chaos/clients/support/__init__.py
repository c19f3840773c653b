"""Parts that several clients of a chaos run share."""
