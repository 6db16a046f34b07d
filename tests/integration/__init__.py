"""The client against the sandbox, over a socket."""
