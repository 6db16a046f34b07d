"""Answers that several services give in the same form (specification sections 4 and 7)."""

from __future__ import annotations

from aiohttp import web


def refusal(status: int, error: str, description: str) -> web.Response:
    """An error body of the signing and fax services: `error` and `description`, with its HTTP status."""
    return web.json_response({"error": error, "description": description}, status=status)
