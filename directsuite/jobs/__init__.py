"""Jobs on top of the services, which survive a crash of the program that runs them."""
