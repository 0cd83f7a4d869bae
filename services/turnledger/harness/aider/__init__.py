"""`harness.aider`: reads the chat history and the analytics log of Aider. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.aider.adapter import FORMAT

__all__ = ["FORMAT"]
