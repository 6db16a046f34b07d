"""The sandbox: the four services, for real, on loopback.

`directsuite.sandbox.server.Sandbox` runs it inside a program or test, `python -m directsuite.sandbox` as a server.
"""
