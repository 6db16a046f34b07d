"""What outlives a process: rows in SQLite or PostgreSQL, files, and the workers of a fleet."""
