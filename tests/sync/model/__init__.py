"""The synchronisation against a model: a server that does its worst, and a sink that believes nothing."""
