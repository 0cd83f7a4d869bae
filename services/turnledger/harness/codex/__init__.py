"""`harness.codex`: reads the rollouts of the Codex CLI. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.codex.adapter import FORMAT, OUTPUT_VERSION, PRODUCER, envelopes, recognises

__all__ = ["FORMAT", "OUTPUT_VERSION", "PRODUCER", "envelopes", "recognises"]
