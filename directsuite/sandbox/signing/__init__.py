"""The sandbox's signing service, which stores and processes PDFs."""
