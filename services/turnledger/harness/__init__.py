"""`harness`: what runs beside a harness: the Ledger publisher and the importers of the files that harnesses write."""

from turnledger.harness.ledger import AsyncLedger, Ledger
from turnledger.harness.numbering import LedgerError
from turnledger.harness.spool import SpoolBroken, SpoolFull, SpoolHeld

__all__ = ["AsyncLedger", "Ledger", "LedgerError", "SpoolBroken", "SpoolFull", "SpoolHeld"]
