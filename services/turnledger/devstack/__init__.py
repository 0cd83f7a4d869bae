"""`devstack`: a real broker and a real database for a laptop and for tests (design 3, "The embedded stack"). Imports no other room.

>>> with Stack(folder) as addresses:          # doctest: +SKIP
...     addresses.kafka_bootstrap, addresses.database_url
"""

from __future__ import annotations

from turnledger.devstack.compose import ComposeStack
from turnledger.devstack.providers import Choice, choose, current, of_folder, stack_for
from turnledger.devstack.stack import Addresses, Stack, state_folder

__all__ = [
    "Addresses",
    "Choice",
    "ComposeStack",
    "Stack",
    "choose",
    "current",
    "of_folder",
    "stack_for",
    "state_folder",
]
