"""Properties of all code that reads responses: any bytes result in a value or a typed error."""
