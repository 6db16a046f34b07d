"""The OpenAPI document, and the sandbox held to it."""
