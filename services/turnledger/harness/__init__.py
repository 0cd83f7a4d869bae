"""`harness`: what runs beside a harness: the Ledger publisher and the importers."""
