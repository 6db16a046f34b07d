"""The parts of every call: deadline, limits, credentials, attempts, retries, errors."""
