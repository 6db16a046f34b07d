"""The fax service (specification section B): the status of fax messages."""
