"""Workers that are killed, again and again."""
