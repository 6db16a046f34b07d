"""Properties of everything that reads what a server sent: any bytes give a value or a typed error, and nothing else."""
