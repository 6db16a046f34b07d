"""The client against the written API: every request as it stands on the wire, byte by byte."""
