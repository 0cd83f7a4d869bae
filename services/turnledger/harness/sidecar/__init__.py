"""`harness.sidecar`: reads the transaction log that a session debugger keeps. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.sidecar.adapter import FORMAT

__all__ = ["FORMAT"]
