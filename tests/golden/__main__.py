"""Writes the golden file of a new fold version; never that of one that has its file."""

from __future__ import annotations

import sys
from hashlib import sha256

from tests.golden import everything, golden, written
from turnledger.fold.version import FOLD_VERSION

path = golden()
if path.exists():
    sys.exit(
        f"{path.name} is there and does not change any more: raise FOLD_VERSION where the fold says something else by intention."
    )
data = written(everything())
path.write_bytes(data)
print(
    f"{path.name}: fold version {FOLD_VERSION}, sha256 {sha256(data).hexdigest()}: put it into a note in docs/decisions with what moved and why."
)
