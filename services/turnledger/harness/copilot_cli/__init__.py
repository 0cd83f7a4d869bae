"""`harness.copilot_cli`: reads the event files of GitHub Copilot CLI. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.copilot_cli.adapter import FORMAT

__all__ = ["FORMAT"]
