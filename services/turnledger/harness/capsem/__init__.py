"""`harness.capsem`: reads the session.db of Capsem. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.capsem.adapter import FORMAT

__all__ = ["FORMAT"]
