"""`harness.qwen_code`: reads the chat files of Qwen Code. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.qwen_code.adapter import FORMAT

__all__ = ["FORMAT"]
