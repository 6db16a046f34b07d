"""The OpenAPI document, and the conformance of the sandbox."""
