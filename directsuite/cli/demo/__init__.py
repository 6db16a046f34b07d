"""`directsuite demo`: use all four services through the client, and check every response."""
