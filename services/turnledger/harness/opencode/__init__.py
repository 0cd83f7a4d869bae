"""`harness.opencode`: reads the database, the export and the older files of OpenCode. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.opencode.adapter import FORMAT

__all__ = ["FORMAT"]
