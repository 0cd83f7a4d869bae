"""`harness.openhands`: reads the events of OpenHands, of both generations. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.openhands.adapter import FORMAT

__all__ = ["FORMAT"]
