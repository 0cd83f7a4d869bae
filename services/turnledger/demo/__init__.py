"""`demo`: a small fleet that looks recorded, and the show that `make demo` runs over the real services."""
