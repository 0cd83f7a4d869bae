"""Owns usage (contract 8): reading a report, its buckets under each convention, ranks, counters and their running values."""

from __future__ import annotations
