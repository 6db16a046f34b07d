"""The sandbox's signing service: stored PDFs, and real work on them."""
