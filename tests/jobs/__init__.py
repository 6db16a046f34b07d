"""Jobs: they survive what breaks."""
