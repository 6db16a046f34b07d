"""Something goes wrong for one mailbox, or for all: what `status` says, that the others go on, and that it mends."""
