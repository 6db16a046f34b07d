"""What real servers of these services are known to send, read through the public client."""
