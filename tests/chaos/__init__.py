"""The client against the sandbox while connections and answers go wrong."""
