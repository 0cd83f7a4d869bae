"""`harness.pi`: reads the session files of the Pi coding agent. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.pi.adapter import FORMAT

__all__ = ["FORMAT"]
