"""Errors that a person reads: one sentence that names the thing, the place and the way out."""

from __future__ import annotations


class TurnledgerError(Exception):
    """Base of every error that ends a command. Its text is a sentence; the command line prints it and exits with 2."""
