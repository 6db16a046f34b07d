"""The signing service (specification section A): PDFs stored, read, flattened and signed in an HSM."""
