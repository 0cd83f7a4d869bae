"""`harness.claude_code`: reads the session files of Claude Code. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.claude_code.adapter import FORMAT, OUTPUT_VERSION, PRODUCER, envelopes, recognises

__all__ = ["FORMAT", "OUTPUT_VERSION", "PRODUCER", "envelopes", "recognises"]
