"""OAuth 2.0 (RFC 6749): grants as sources of bearer tokens."""
