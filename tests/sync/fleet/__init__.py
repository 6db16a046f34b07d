"""The store in PostgreSQL, the limits shared through it, and the fleet."""
