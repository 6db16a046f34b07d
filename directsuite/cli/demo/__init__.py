"""`directsuite demo`: all four services through the client, with a check of everything that comes back."""
