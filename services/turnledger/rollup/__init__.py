"""`rollup`: the rollup worker."""
