"""Reasons of the checks about reading: what came and was not, or not wholly, understood."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from typing import Any, Final

from turnledger.contract.types import EVENT_TYPES
from turnledger.doctor.findings import Evidence, Explain, Finding, Place, Reason, plural, some


def unknown_event_type(finding: Finding, evidence: Evidence) -> Reason:
    names = [row["type"] for row in finding.rows]
    close = {
        name: match[0]
        for name in names
        if (match := get_close_matches(name.replace("_", "."), EVENT_TYPES, n=1, cutoff=0.8))
    }
    meant = ", ".join(f"{name} may mean {match}" for name, match in list(close.items())[:3])
    return Reason(
        f"{plural(finding.count, 'event')} of {plural(len(names), 'type')} that turnledger does not know ({some(names)}), from "
        f"{some(_producers(names, evidence))}: kept, counted, in no figure" + (f"; {meant}" if meant else ""),
        "correct the spelling in the producer where one was meant, or leave it: an unknown type harms nothing",
    )


def newer_schema_version(finding: Finding, evidence: Evidence) -> Reason:
    versions = some(row["schema_version"] for row in finding.rows)
    return Reason(
        f"{plural(finding.count, 'event')} said schema version {versions}; what they say is read with the fields that this version knows "
        f"({some(evidence.told_by(''))} sent this session)",
        "upgrade turnledger, then `turnledger replay projections` reads the same events with all their fields",
    )


def wrong_type_in_payload(finding: Finding, evidence: Evidence) -> Reason:
    fields = Counter((row["type"], row["field"]) for row in finding.rows)
    (kind, field), _ = fields.most_common(1)[0]
    found = Counter(
        _kind_of(_value(evidence.events[place].payload, field))
        for row in finding.rows
        if (row["type"], row["field"]) == (kind, field)
        and (place := Place.of(row)) is not None
        and place in evidence.events
    )
    is_ = f": there it is {found.most_common(1)[0][0]}" if found else ""
    return Reason(
        f"{plural(finding.count, 'field')} could not be read and count as unknown, most often {field} of {kind}{is_} "
        f"({some(f'{name} {field_}' for name, field_ in fields.elements())})",
        f"the original stands in the event (`select payload from turnledger.events where session_id = '{evidence.session_id}' and type = "
        f"'{kind}'`); mend the producer's {field}",
    )


def secret_redacted_at_ingest(finding: Finding, evidence: Evidence) -> Reason:
    producers = some(row.get("producer") for row in finding.rows)
    streams = some(row.get("stream") for row in finding.rows)
    return Reason(
        f"{plural(finding.count, 'event')} held a secret, a header or a slot value when they reached the collector (from {producers}, "
        f"stream {streams}): they are stored redacted, but they crossed Kafka as they were",
        "redact in the producer (turnledger's Ledger does it), delete the records from the topic if they matter, and turn the secret",
    )


def _producers(types: list[str], evidence: Evidence) -> list[str]:
    return sorted({one["producer"] for one in evidence.types if one["type"] in types})


def _value(payload: dict[str, Any], path: str) -> Any:
    found: Any = payload
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _kind_of(value: Any) -> str:
    if value is None:
        return "nested elsewhere"
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, str):
        return "text" if not value.startswith("[") else "text in brackets, as a redactor writes it"
    if isinstance(value, int | float):
        return "a negative number" if value < 0 else "a number out of its range, or not whole"
    return "a list" if isinstance(value, list) else "an object"


REASONS: Final[dict[str, Explain]] = {
    "unknown_event_type": unknown_event_type,
    "newer_schema_version": newer_schema_version,
    "wrong_type_in_payload": wrong_type_in_payload,
    "secret_redacted_at_ingest": secret_redacted_at_ingest,
}
