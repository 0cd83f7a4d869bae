"""`harness`: what runs beside a harness: the Ledger publisher and the importers of the files that harnesses write."""

from turnledger.harness.ledger import AsyncLedger, Ledger
from turnledger.harness.numbering import LedgerError
from turnledger.harness.scopes import (
    AsyncDispatched,
    AsyncModelCall,
    AsyncToolCall,
    AsyncTurn,
    Dispatched,
    ModelCall,
    ToolCall,
    Turn,
)
from turnledger.harness.spool import SpoolBroken, SpoolFull, SpoolHeld

__all__ = [
    "AsyncDispatched",
    "AsyncLedger",
    "AsyncModelCall",
    "AsyncToolCall",
    "AsyncTurn",
    "Dispatched",
    "Ledger",
    "LedgerError",
    "ModelCall",
    "SpoolBroken",
    "SpoolFull",
    "SpoolHeld",
    "ToolCall",
    "Turn",
]
