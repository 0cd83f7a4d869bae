"""`harness.swe_agent`: reads the trajectories of SWE-agent and mini-swe-agent. ``README.md`` beside this file is the note on the format."""

from turnledger.harness.swe_agent.adapter import FORMAT

__all__ = ["FORMAT"]
