"""The signing service (specification section A): store, read, flatten and sign PDFs."""
