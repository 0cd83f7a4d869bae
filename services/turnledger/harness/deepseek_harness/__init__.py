"""`harness.deepseek_harness`: reads the session logs of DeepSeek Harness. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.deepseek_harness.adapter import FORMAT

__all__ = ["FORMAT"]
