"""attrs models and the bytes on the wire: JSON, base64, dates. Knows nothing of HTTP."""
