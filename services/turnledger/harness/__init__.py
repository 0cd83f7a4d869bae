"""`harness`: what runs beside a harness: the Ledger publisher and the importers of the files that harnesses write."""

from turnledger.harness.ledger import AsyncLedger, Ledger, LedgerError

__all__ = ["AsyncLedger", "Ledger", "LedgerError"]
