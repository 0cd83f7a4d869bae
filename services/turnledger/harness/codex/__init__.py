"""`harness.codex`: reads the rollout files of OpenAI Codex CLI. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.codex.adapter import OUTPUT_VERSION, PRODUCER, envelopes, recognises

__all__ = ["OUTPUT_VERSION", "PRODUCER", "envelopes", "recognises"]
