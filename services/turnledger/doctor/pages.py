"""The pages of `turnledger sessions`: which figures a person sees, and how complete they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any, TextIO

from turnledger.doctor.tables import UNKNOWN, count, dollars, safe, second, show

Row = dict[str, Any]


def sessions_page(out: TextIO, rows: Sequence[Row]) -> None:
    """One line a session."""
    if not rows:
        out.write("no sessions yet: publish some events, or wait for the rollup worker.\n")
        return
    tenants = len({row["tenant"] for row in rows}) > 1
    heads = [
        "session",
        "agent",
        "status",
        "last activity",
        "turns>",
        "calls>",
        "tools>",
        "in>",
        "out>",
        "cost>",
        "known>",
        "gaps>",
        "grade",
    ]
    show(
        out,
        "sessions",
        [*(["tenant"] if tenants else []), *heads],
        [
            [
                *([row["tenant"]] if tenants else []),
                row["session_id"],
                row["agent"],
                row["status"],
                second(row["last_activity_at"]),
                count(row["turn_count"]),
                count(row["model_call_count"]),
                count(row["total_tool_calls"]),
                count(row["total_input_tokens"]),
                count(row["output_tokens"]),
                _cost(row),
                _coverage(row),
                count(row["open_gaps"]),
                row["grade"],
            ]
            for row in rows
        ],
    )  # fmt: skip


def session_facts(out: IO[str], session_id: str, found: Row) -> None:
    """The sums of one session."""
    row = found["session"]
    if row is None:
        out.write(f"session {safe(session_id)}: its sums are not there yet; the rollup worker sets them.\n\n")
        return
    for name, value in _facts(row):
        out.write(f"{name:<14}{safe(value)}\n")
    out.write("\n")


def session_faults(out: IO[str], found: Row) -> None:
    """What is wrong with one session, in tables."""
    show(
        out,
        "gaps",
        ["stream", "from>", "to>", "missing>", "state", "seen open", "closed"],
        [
            [_stream(gap), gap["from_seq"], gap["to_seq"], count(gap["missing"]), gap["state"], second(gap["opened_at"]), second(gap["closed_at"])]
            for gap in found["gaps"]
        ],
    )  # fmt: skip
    show(
        out,
        "conflicts: the first stays, the other was refused",
        ["stream", "position", "kept", "refused", "times>"],
        [
            [
                _stream(row),
                row["seq"] if row["seq"] is not None else row["receipt_key"],
                row["kept_sha256"][:12],
                row["lost_sha256"][:12],
                row["count"],
            ]
            for row in found["conflicts"]
        ],
    )
    show(
        out,
        "dead letters",
        ["topic", "partition>", "position>", "reason", "field", "detail"],
        [
            [row["topic"], row["partition"], row["position"], row["reason"], row["field"], row["detail"]]
            for row in found["dead_letters"]
        ],
    )
    show(
        out,
        "findings",
        ["check", "severity", "count>"],
        [[row["check"], row["severity"], row["count"]] for row in found["findings"]],
    )


def _facts(row: Row) -> list[tuple[str, Any]]:
    known = (
        f"{row['usage_reported']} of {row['usage_total']} reported"
        if row["usage_total"]
        else "nothing to report"
    )
    facts: list[tuple[str, Any]] = [
        ("session", row["session_id"]),
        ("tenant", row["tenant"]),
        ("name", row["name"]),
        ("agent", row["agent"]),
        ("status", row["status"]),
        ("from", second(row["created_at"])),
        ("to", second(row["last_activity_at"])),
        ("models", ", ".join(map(safe, row["models"] or [])) or None),
        ("turns", count(row["turn_count"])),
        ("model calls", f"{count(row['model_call_count'])} ({count(row['failed_model_calls'])} failed)"),
        ("tool calls", f"{count(row['total_tool_calls'])} ({count(row['tool_errors'])} with an error)"),
        (
            "tokens in",
            f"{count(row['total_input_tokens'])} ({count(row['cache_read_tokens'])} read from a cache)",
        ),
        ("tokens out", count(row["output_tokens"])),
        ("known", known),
        ("cost", _cost(row)),
        ("grade", row["grade"]),
    ]
    if row["inherited_usage"]:
        usage = row["inherited_usage"]
        facts.append(
            (
                "inherited",
                f"{count(usage.get('total_input'))} in, {count(usage.get('output'))} out (summed where they were made)",
            )
        )
    return [(name, value) for name, value in facts if value is not None]


def _cost(row: Row) -> str:
    """With a mark where something of it has no price: such a sum is a lower bound."""
    unpriced = row["unpriced_calls"]
    return dollars(row["cost_micro_usd"]) + (f" +{unpriced}?" if unpriced else "")


def _coverage(row: Row) -> str:
    if row["usage_total"] is None:
        return UNKNOWN
    return f"{row['usage_reported']}/{row['usage_total']}"


def _stream(row: Row) -> str:
    epoch = f"/{row['epoch']}" if row["epoch"] else ""
    return f"{row['producer']}{epoch}/{row['stream']}"
