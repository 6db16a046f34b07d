"""What every call goes through: deadline, limits, credentials, attempts, retries, errors."""
