"""`pricing`: the price catalogue and the price of one call."""
