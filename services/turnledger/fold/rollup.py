"""Owns the sums of one session (contract 8 to 12): after ownership and prices, from its rows. The CLI's fold and the rollup worker call the same.

Pure, and a function of the rows alone: it sets, it never adds to what was there before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from turnledger.fold.columns import BUCKETS
from turnledger.fold.model import Row

HOUR = 3_600_000_000
"""µs."""
UNKNOWN = "unknown"
"""Stands for a null in the key of a rollup (contract 12)."""
INT64_MAX = 2**63 - 1
USAGE_GAPS = frozenset(
    {
        "usage_unknown_start",
        "usage_counter_reset",
        "usage_counter_contradiction",
        "usage_open_predecessor",
        "usage_copies_differ",
        "usage_call_total_differs",
    }
)
"""Findings that make a grade ``partial`` (contract 8)."""


class Priced(Protocol):
    """What a price function answers; see ``pricing.Price``."""

    @property
    def cost_micro_usd(self) -> int | None: ...
    @property
    def cost_fidelity(self) -> str | None: ...
    @property
    def price_id(self) -> str | None: ...
    @property
    def catalog_version(self) -> int | None: ...
    @property
    def unpriced(self) -> bool: ...


class PriceFunction(Protocol):
    """Price of the known buckets of one call, or (``one_request`` false) of one contribution, at an instant in µs (contract 9)."""

    def __call__(
        self,
        provider: str | None,
        model: str | None,
        usage: Mapping[str, int | None],
        at: int | None,
        convention: str | None,
        *,
        one_request: bool,
    ) -> Priced: ...


@runtime_checkable
class PriceHistory(PriceFunction, Protocol):
    """A price function that remembers what a call cost before it was repriced (contract 9)."""

    def every(
        self,
        provider: str | None,
        model: str | None,
        usage: Mapping[str, int | None],
        at: int | None,
        convention: str | None,
        *,
        one_request: bool,
    ) -> Sequence[tuple[int, Priced]]:
        """(number of the reprice run, price) in their order, the first price as run 0; empty for what was never repriced."""


@dataclass(slots=True)
class SessionRows:
    """What the fold wrote for one session, under the names of ``fold.columns``."""

    tenant: str
    session_id: str
    facts: Row
    turns: Sequence[Row]
    """``columns.TURNS``; with ``grade`` before ``disputed``."""
    calls: Sequence[Row]
    """``columns.MODEL_CALLS``, those outside turns too."""
    tools: Sequence[Row]
    """``columns.TOOL_CALLS``, those outside turns too."""
    contributions: Sequence[Row]
    """``columns.USAGE_PARTS``: what running totals added."""
    loose_checks: frozenset[str] = frozenset()
    """Names of the findings that no turn holds."""
    open_gaps: int = 0
    """Ranges, not numbers."""
    conflicts: int = 0
    dead_letters: int = 0
    disputed_turns: frozenset[str] = frozenset()
    """Keys of turns with the kept event of a conflict."""
    detail: str = "full"


@dataclass(slots=True)
class TurnSums:
    """One turn after ownership and prices."""

    row: Row
    """``columns.TURN_OVERLAY`` without ``overlay``."""
    calls: list[tuple[Row, Row]]
    """(call, its overlay) in the order of contract 5."""
    inherited_usage: Row | None


@dataclass(slots=True)
class SessionRollup:
    """Everything that one session gets from ownership and prices."""

    session: Row
    """``columns.SESSIONS``."""
    ai_usage: list[Row]
    tool_usage: list[Row]
    mcp_usage: list[Row]
    hour_parts: list[Row]
    """Each sorted by its key."""
    calls: list[Row]
    """``columns.CALL_OVERLAY``, one for each call."""
    parts: list[Row]
    """``columns.PART_OVERLAY``, one for each contribution."""
    repriced: list[Row]
    """``columns.REPRICED``: the prices of what reprice runs touched, by key and run."""
    turns: dict[str, TurnSums]
    """By ``turn_key``."""
    findings: list[Row]
    """{check, severity, row}."""


def roll_up(rows: SessionRows, owner: Callable[[str], str], price: PriceFunction) -> SessionRollup:
    """Sums of one session. ``owner`` answers which session sums a call, by ``call_key`` (``Ownership.owner``)."""
    calls = sorted(rows.calls, key=_place)
    overlays = [_call_overlay(call, owner(call["call_key"]), rows.session_id, price) for call in calls]
    call_parts = [
        _call_part(call, overlay) for call, overlay in zip(calls, overlays, strict=True) if call["counts"]
    ]
    contributions = [_contribution(row, price) for row in rows.contributions]
    parts = [*call_parts, *contributions]

    kind = rows.facts["kind"]
    lived = _shown_with(kind)
    summed = [part for part in parts if lived(part.kind) and not part.inherited]
    own_calls = [
        call
        for call, overlay in zip(calls, overlays, strict=True)
        if lived(call["kind"]) and not overlay["inherited"]
    ]
    copied_turns = {turn["turn_key"] for turn in rows.turns if turn["inherited"]}
    own_tools = [
        tool
        for tool in rows.tools
        if lived(tool["kind"]) and not tool["inherited_event"] and tool["turn_key"] not in copied_turns
    ]
    turns = _turns(rows, calls, overlays, parts)
    return SessionRollup(
        session=_session(rows, parts, summed, own_calls, own_tools),
        ai_usage=_ai_usage(kind, own_calls, summed),
        tool_usage=_tool_usage(kind, own_tools, _tool_key, ("tool_name", "origin")),
        mcp_usage=_tool_usage(
            kind,
            [tool for tool in own_tools if tool["server_name"] is not None],
            _mcp_key,
            ("server_name", "tool_name"),
        ),
        hour_parts=[] if kind == "eval" else _hour_parts(own_calls, summed),
        calls=overlays,
        parts=[part.overlay for part in contributions],
        repriced=_repriced(calls, rows.contributions, price),
        turns=turns,
        findings=_unpriced(summed),
    )


def overlay(record: Row, sums: TurnSums) -> Row:
    """What replaces members of a turn's record of the same name: the model calls with their owners and costs, the usage after ownership.

    ``record`` is what the digest covers. ``usage`` and ``inherited_usage`` are there only where something is inherited. Raises ``ValueError`` when
    the record and the calls are not of one fold.
    """
    shown: list[Row] = record.get("model_calls") or []
    if len(shown) != len(sums.calls):
        raise ValueError(
            f"the record shows {len(shown)} model calls and {len(sums.calls)} rows say what they cost"
        )
    laid: Row = {}
    if shown:
        laid["model_calls"] = [
            {
                **entry,
                **{name: over[name] for name in ("cost_micro_usd", "cost_fidelity", "price_id", "inherited")},
            }
            for entry, (_, over) in zip(shown, sums.calls, strict=True)
        ]
    if shown or sums.row["usage_total"] or sums.row["cost_micro_usd"] is not None:
        laid["cost_micro_usd"] = sums.row["cost_micro_usd"]
    if sums.inherited_usage is not None:
        laid["usage"] = {name: sums.row[f"{name}_tokens"] for name in BUCKETS}
        laid["usage"].update(reported=sums.row["usage_reported"], total=sums.row["usage_total"])
        laid["inherited_usage"] = sums.inherited_usage
    return laid


def hourly(parts: Iterable[tuple[str, Row]]) -> list[Row]:
    """``usage_hourly`` of one tenant from (session_id, row of ``columns.HOUR_PARTS``), sorted by its key, null first."""
    buckets: dict[tuple[Any, ...], list[tuple[str, Row]]] = defaultdict(list)
    for session_id, part in parts:
        buckets[(part["hour"], part["provider"], part["model"])].append((session_id, part))
    rows = []
    for (hour, provider, model), members in sorted(buckets.items(), key=lambda item: _null_first(item[0])):
        row: Row = {"hour": hour, "provider": provider, "model": model}
        row["calls"] = add(part["calls"] for _, part in members)
        for name in (*_TOKENS, "usage_reported", "usage_total", "cost_micro_usd", "unpriced_calls"):
            row[name] = add(part[name] for _, part in members)
        row["sessions"] = len({session_id for session_id, _ in members})
        rows.append(row)
    return rows


def add(values: Iterable[int | None]) -> int | None:
    """The sum of what is known, None when nothing is, or when no column of eight bytes could hold it."""
    known = [value for value in values if value is not None]
    total = sum(known)
    return total if known and total <= INT64_MAX else None


# --- parts ------------------------------------------------------------------------------------------------------------------------

_TOKENS = tuple(f"{name}_tokens" for name in BUCKETS)


@dataclass(slots=True)
class _Part:
    """One summand of usage and cost: a call that counts by itself, or a contribution (contract 8, Parts)."""

    turn_key: str | None
    provider: str | None
    model: str | None
    hour_at: int | None
    kind: str
    fidelity: str | None
    inherited: bool
    figures: Row
    """``…_tokens``, ``usage_reported``, ``usage_total``."""
    overlay: Row
    """With ``cost_micro_usd`` and ``unpriced``."""


def _price(row: Row, price: PriceFunction, *, one_request: bool) -> Row:
    return _price_columns(price(*_question(row), one_request=one_request))


def _question(row: Row) -> tuple[str | None, str | None, Row, int | None, str | None]:
    """What a price function is asked about a call or a contribution."""
    usage = {name: row[f"{name}_tokens"] for name in BUCKETS}
    return row["provider"], row["model"], usage, row["hour_at"], row["token_convention"]


def _price_columns(priced: Priced) -> Row:
    return {
        "cost_micro_usd": add([priced.cost_micro_usd]),
        "cost_fidelity": priced.cost_fidelity,
        "price_id": priced.price_id,
        "catalog_version": priced.catalog_version,
        "unpriced": priced.unpriced,
    }


def _repriced(calls: Sequence[Row], contributions: Sequence[Row], price: PriceFunction) -> list[Row]:
    if not isinstance(price, PriceHistory):
        return []
    rows = []
    for call in calls:
        for run_no, priced in price.every(*_question(call), one_request=True):
            rows.append(
                {
                    "call_key": call["call_key"],
                    "part_key": None,
                    "run_no": run_no,
                    **_price_columns(priced),
                }
            )
    for part in contributions:
        for run_no, priced in price.every(*_question(part), one_request=False):
            rows.append(
                {
                    "call_key": None,
                    "part_key": part["part_key"],
                    "run_no": run_no,
                    **_price_columns(priced),
                }
            )
    return rows


def _call_overlay(call: Row, owner: str, session_id: str, price: PriceFunction) -> Row:
    return {
        "call_key": call["call_key"],
        "inherited": owner != session_id,
        "owner_session_id": owner,
        **_price(call, price, one_request=True),
    }


def _call_part(call: Row, laid: Row) -> _Part:
    """``total`` counts calls that did not fail or that reported, ``reported`` those with a known counter."""
    figures = {name: call[name] for name in _TOKENS}
    reported = any(figure is not None for figure in figures.values())
    figures["usage_reported"] = int(reported)
    figures["usage_total"] = int(reported or call["status"] != "failed")
    return _Part(
        call["turn_key"],
        call["provider"],
        call["model"],
        call["hour_at"],
        call["kind"],
        call["fidelity"] if figures["usage_total"] else None,
        laid["inherited"],
        figures,
        laid,
    )


def _contribution(row: Row, price: PriceFunction) -> _Part:
    figures = {name: row[name] for name in (*_TOKENS, "usage_reported", "usage_total")}
    laid = {"part_key": row["part_key"], **_price(row, price, one_request=False)}
    return _Part(
        row["turn_key"],
        row["provider"],
        row["model"],
        row["hour_at"],
        row["kind"],
        row["fidelity"],
        bool(row["inherited_event"]),
        figures,
        laid,
    )


def _sums(parts: Sequence[_Part]) -> Row:
    """Usage and cost columns; counters are null when no part reported them, the counts of parts never are."""
    row = {name: add(part.figures[name] for part in parts) for name in _TOKENS}
    row["usage_reported"] = sum(part.figures["usage_reported"] for part in parts)
    row["usage_total"] = sum(part.figures["usage_total"] for part in parts)
    row["cost_micro_usd"] = add(part.overlay["cost_micro_usd"] for part in parts)
    row["unpriced_calls"] = sum(part.overlay["unpriced"] for part in parts)
    return row


def _usage_object(parts: Sequence[_Part]) -> Row | None:
    """The same as a ``usage`` object (contract 17), None without parts."""
    if not parts:
        return None
    sums = _sums(parts)
    return {
        **{name: sums[f"{name}_tokens"] for name in BUCKETS},
        "reported": sums["usage_reported"],
        "total": sums["usage_total"],
    }


# --- rollups ----------------------------------------------------------------------------------------------------------------------


def _shown_with(session_kind: str) -> Callable[[str | None], bool]:
    """A mixed session's sums leave eval work out; a session that is all eval sums it (contract 12)."""
    return (lambda kind: True) if session_kind == "eval" else (lambda kind: kind != "eval")


def _turns(
    rows: SessionRows, calls: Sequence[Row], overlays: Sequence[Row], parts: Sequence[_Part]
) -> dict[str, TurnSums]:
    calls_of: dict[str, list[tuple[Row, Row]]] = defaultdict(list)
    for call, laid in zip(calls, overlays, strict=True):
        if call["turn_key"] is not None:
            calls_of[call["turn_key"]].append((call, laid))
    parts_of: dict[str, list[_Part]] = defaultdict(list)
    for part in parts:
        if part.turn_key is not None:
            parts_of[part.turn_key].append(part)
    turns = {}
    for turn in rows.turns:
        key = turn["turn_key"]
        grade = "disputed" if key in rows.disputed_turns else None
        row = {
            "turn_key": key,
            **_sums([part for part in parts_of[key] if not part.inherited]),
            "grade": grade,
        }
        inherited = _usage_object([part for part in parts_of[key] if part.inherited])
        turns[key] = TurnSums(row, calls_of[key], inherited)
    return turns


def _session(
    rows: SessionRows,
    parts: Sequence[_Part],
    summed: Sequence[_Part],
    own_calls: Sequence[Row],
    own_tools: Sequence[Row],
) -> Row:
    facts, lived = rows.facts, _shown_with(rows.facts["kind"])
    return {
        **{name: facts[name] for name in ("name", "agent", "mode", "status", "kind")},
        **{
            name: facts[name]
            for name in ("created_at", "last_activity_at", "stopped_at", "models", "message_count")
        },
        "turn_count": sum(1 for turn in rows.turns if lived(turn["kind"]) and not turn["inherited"]),
        **{
            name: facts[name]
            for name in ("total_requests", "allowed_requests", "denied_requests", "error_requests")
        },
        "model_call_count": len(own_calls),
        "failed_model_calls": sum(call["status"] == "failed" for call in own_calls),
        **_sums(summed),
        "total_tool_calls": len(own_tools),
        "tool_errors": sum(tool["status"] == "error" for tool in own_tools),
        **{name: facts[name] for name in ("total_file_events", "exec_count", "audit_event_count")},
        **{name: facts[name] for name in ("guard_blocks", "guard_coercions")},
        "open_gaps": rows.open_gaps,
        "conflicts": rows.conflicts,
        "dead_letters": rows.dead_letters,
        "grade": _grade(rows, parts),
        "detail": rows.detail,
        "inherited_usage": _usage_object([part for part in parts if part.inherited and lived(part.kind)]),
    }


def _grade(rows: SessionRows, parts: Sequence[_Part]) -> str:
    """The worst that holds (contract 13). What lies in a turn is in the turn's grade already."""
    grades = {turn["grade"] for turn in rows.turns}
    if rows.conflicts:
        return "disputed"
    if rows.open_gaps or "gaps" in grades:
        return "gaps"
    loose = [part for part in parts if part.turn_key is None]
    if (
        "partial" in grades
        or rows.loose_checks & USAGE_GAPS
        or any(
            tool["turn_key"] is None and tool["pairing"] in ("missing_result", "orphan_result")
            for tool in rows.tools
        )
        or any(part.fidelity == "lower_bound" for part in loose)
        or any(part.figures["usage_reported"] < part.figures["usage_total"] for part in loose)
    ):
        return "partial"
    return "unknown" if rows.facts["stream_grade"] == "unknown" else "complete"


def _ai_usage(kind: str, calls: Sequence[Row], parts: Sequence[_Part]) -> list[Row]:
    calls_of: dict[tuple[str, str], list[Row]] = defaultdict(list)
    parts_of: dict[tuple[str, str], list[_Part]] = defaultdict(list)
    for call in calls:
        calls_of[(call["provider"] or UNKNOWN, call["model"] or UNKNOWN)].append(call)
    for part in parts:
        parts_of[(part.provider or UNKNOWN, part.model or UNKNOWN)].append(part)
    return [
        {
            "provider": key[0],
            "model": key[1],
            "kind": kind,
            "call_count": len(calls_of[key]),
            "failed_count": sum(call["status"] == "failed" for call in calls_of[key]),
            **_sums(parts_of[key]),
            "total_duration_ms": add(call["latency_ms"] for call in calls_of[key]),
        }
        for key in sorted({*calls_of, *parts_of}, key=_null_first)
    ]


def _tool_key(tool: Row) -> tuple[str, str]:
    return tool["tool_name"] or UNKNOWN, tool["origin"] or UNKNOWN


def _mcp_key(tool: Row) -> tuple[str, str]:
    server: str = tool["server_name"]
    name: str = tool["tool_name"] or UNKNOWN
    for prefix in (f"{server}__", f"mcp__{server}__"):
        if name.startswith(prefix) and name != prefix:
            name = name[len(prefix) :]
            break
    return server, name


def _tool_usage(
    kind: str, tools: Sequence[Row], key_of: Callable[[Row], tuple[str, str]], names: tuple[str, str]
) -> list[Row]:
    tools_of: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for tool in tools:
        tools_of[key_of(tool)].append(tool)
    return [
        {
            names[0]: key[0],
            names[1]: key[1],
            "kind": kind,
            "call_count": len(members),
            "error_count": sum(tool["status"] == "error" for tool in members),
            "denied_count": sum(tool["status"] == "denied" for tool in members),
            "total_bytes": add(tool[name] for tool in members for name in ("bytes_sent", "bytes_received")),
            "total_duration_ms": add(tool["duration_ms"] for tool in members),
        }
        for key, members in sorted(tools_of.items(), key=lambda item: _null_first(item[0]))
    ]


def _hour_parts(calls: Sequence[Row], parts: Sequence[_Part]) -> list[Row]:
    counts: dict[tuple[int | None, str, str], int] = defaultdict(int)
    parts_of: dict[tuple[int | None, str, str], list[_Part]] = defaultdict(list)
    for call in calls:
        counts[(_hour(call["hour_at"]), call["provider"] or UNKNOWN, call["model"] or UNKNOWN)] += 1
    for part in parts:
        parts_of[(_hour(part.hour_at), part.provider or UNKNOWN, part.model or UNKNOWN)].append(part)
    return [
        {"hour": key[0], "provider": key[1], "model": key[2], "calls": counts[key], **_sums(parts_of[key])}
        for key in sorted({*counts, *parts_of}, key=_null_first)
    ]


def _unpriced(parts: Sequence[_Part]) -> list[Row]:
    counts: dict[tuple[str | None, str | None], int] = defaultdict(int)
    for part in parts:
        if part.overlay["unpriced"]:
            counts[(part.provider, part.model)] += 1
    return [
        {
            "check": "unpriced_model",
            "severity": "warning",
            "row": {"provider": provider, "model": model, "calls": count},
        }
        for (provider, model), count in sorted(counts.items(), key=lambda item: _null_first(item[0]))
    ]


def _hour(at: int | None) -> int | None:
    return None if at is None else at - at % HOUR


def _place(row: Row) -> tuple[bytes, bytes]:
    return row["order_key"] or b"", row["call_key"].encode()


def _null_first(key: Iterable[Any]) -> tuple[tuple[bool, Any], ...]:
    """Sorts keys of text and numbers with nulls first, text by its UTF-8 bytes (contract 17)."""
    return tuple(
        (part is not None, part.encode() if isinstance(part, str) else part if part is not None else 0)
        for part in key
    )
