"""Workers that are killed repeatedly."""
