"""Owns which hosts are model providers', and the traffic to them that no model call explains (contract 13)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from turnledger.contract.event import Event
from turnledger.fold.fields import finding
from turnledger.fold.model import Row

SUFFIXES: Final = (".anthropic.com", ".openai.com", ".googleapis.com")
"""The hosts that the harness ledger's own checker looks for. Somebody's proxy or another provider is nobody's guess."""


def is_provider(event: Event) -> bool:
    """A ``net.requested`` that reached a model provider's host: one that was denied reached nobody."""
    domain = event.payload.get("domain")
    return (
        type(domain) is str
        and domain.lower().rstrip(".").endswith(SUFFIXES)
        and event.payload.get("decision") != "denied"
    )


def unexplained_traffic(requests: Iterable[Event]) -> list[Row]:
    """``traffic_without_model_call`` of requests beside which no model call stands: tokens may have been used that nobody counted."""
    return [
        finding("traffic_without_model_call", "warning", event, domain=event.payload["domain"])
        for event in requests
        if is_provider(event)
    ]
