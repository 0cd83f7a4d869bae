"""Errors that a person reads: one sentence that names the thing, the place and the way out."""

from __future__ import annotations


class TurnledgerError(Exception):
    """Base of every error that ends a command. Its text is a sentence; the command line prints it and exits with 2.

    No secret by shape gets into it (contract 14), whatever a library or a record put into the sentence.
    """

    def __init__(self, *said: object) -> None:
        from turnledger.contract.shapes import hide

        super().__init__(*(hide(one) if isinstance(one, str) else one for one in said))
