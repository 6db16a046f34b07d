"""The registration service (specification section D): Direct addresses for identity-proofed patients."""
