"""Jobs that use the services and continue after a crash of the program."""
