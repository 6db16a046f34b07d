"""The demo: its steps, what they make, and what is said of it."""
