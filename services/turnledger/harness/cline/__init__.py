"""`harness.cline`: reads the task files of Cline and Roo Code. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.cline.adapter import FORMAT

__all__ = ["FORMAT"]
