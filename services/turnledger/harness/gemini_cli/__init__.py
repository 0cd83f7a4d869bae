"""`harness.gemini_cli`: reads the chat files of Gemini CLI. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.gemini_cli.adapter import FORMAT

__all__ = ["FORMAT"]
