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
from turnledger.fold.shares import AI, COUNTS, FIGURES, HOURLY, TOOL, Key, Share, Vector

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


@dataclass(slots=True)
class Part:
    """What ownership and prices make of some turns of a session, or of what stands outside of its turns."""

    share: Share
    """What it adds to the session's sums."""
    calls: list[Row]
    parts: list[Row]
    repriced: list[Row]
    turns: dict[str, TurnSums]
    """As in :class:`SessionRollup`."""


def roll_up(rows: SessionRows, owner: Callable[[str], str], price: PriceFunction) -> SessionRollup:
    """Sums of one session. ``owner`` answers which session sums a call, by ``call_key`` (``Ownership.owner``)."""
    part = part_of(rows, owner, price)
    return whole(rows, part.share, [part])


def part_of(rows: SessionRows, owner: Callable[[str], str], price: PriceFunction) -> Part:
    """The same of some of a session's turns with all their rows, or of rows outside of turns: ``rows`` holds no others."""
    calls = sorted(rows.calls, key=_place)
    overlays = [_call_overlay(call, owner(call["call_key"]), rows.session_id, price) for call in calls]
    call_parts = [
        _call_part(call, overlay) for call, overlay in zip(calls, overlays, strict=True) if call["counts"]
    ]
    contributions = [_contribution(row, price) for row in rows.contributions]
    return Part(
        _share(rows, calls, overlays, [*call_parts, *contributions]),
        overlays,
        [part.overlay for part in contributions],
        _repriced(calls, rows.contributions, price),
        _turns(rows, calls, overlays, [*call_parts, *contributions]),
    )


def whole(rows: SessionRows, share: Share, parts: Sequence[Part]) -> SessionRollup:
    """The session's own rows of ``share``, all shares of it together, beside what ``parts`` of it say. Of ``rows`` the facts are looked at alone,
    and what concerns the session as one."""
    kind = rows.facts["kind"]
    return SessionRollup(
        session=_session(rows, share),
        ai_usage=_ai_usage(kind, share),
        tool_usage=_tool_usage(kind, share.sums["tool"], ("tool_name", "origin")),
        mcp_usage=_tool_usage(kind, share.sums["mcp"], ("server_name", "tool_name")),
        hour_parts=_hour_parts(share),
        calls=[row for part in parts for row in part.calls],
        parts=[row for part in parts for row in part.parts],
        repriced=[row for part in parts for row in part.repriced],
        turns={key: sums for part in parts for key, sums in part.turns.items()},
        findings=_unpriced(share),
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


def _share(rows: SessionRows, calls: Sequence[Row], overlays: Sequence[Row], parts: Sequence[_Part]) -> Share:
    kind = rows.facts["kind"]
    lived = _shown_with(kind)
    share = Share()
    for turn in rows.turns:
        counted = lived(turn["kind"]) and not turn["inherited"]
        grade = turn["grade"]
        share.add("session", (), [int(counted), 0, 0, 0, 0, int(grade == "gaps"), int(grade == "partial")])
    for call, laid in zip(calls, overlays, strict=True):
        if call["inherited_event"] and not laid["inherited"]:
            ids = (call["turn_key"], call["model_call_id"], call["message_id"])
            share.add("sole", ((call["order_key"] or b"").hex(), call["call_key"], *ids), [1])
        if not lived(call["kind"]) or laid["inherited"]:
            continue
        failed = int(call["status"] == "failed")
        named = (call["provider"] or UNKNOWN, call["model"] or UNKNOWN)
        share.add("session", (), [1, failed], COUNTS.index("model_call_count"))
        share.add("ai", named, [1, failed])
        share.add("ai", named, [call["latency_ms"]], AI.index("total_duration_ms"))
        if kind != "eval":
            share.add("hour", (_hour(call["hour_at"]), *named), [1])
    for part in parts:
        if part.turn_key is None:
            lacking = part.figures["usage_reported"] < part.figures["usage_total"]
            partial = int(lacking or part.fidelity == "lower_bound")
            share.add("session", (), [partial], COUNTS.index("partial"))
        if not lived(part.kind):
            continue
        figures = _figures(part)
        if part.inherited:
            share.add("inherited", (), figures)
            continue
        named = (part.provider or UNKNOWN, part.model or UNKNOWN)
        share.add("session", (), figures, len(COUNTS))
        share.add("ai", named, figures, AI.index(FIGURES[0]))
        if kind != "eval":
            share.add("hour", (_hour(part.hour_at), *named), figures, HOURLY.index(FIGURES[0]))
        if part.overlay["unpriced"]:
            share.add("unpriced", (part.provider, part.model), [1])
    copied_turns = {turn["turn_key"] for turn in rows.turns if turn["inherited"]}
    for tool in rows.tools:
        if tool["turn_key"] is None and tool["pairing"] in ("missing_result", "orphan_result"):
            share.add("session", (), [1], COUNTS.index("partial"))
        if not lived(tool["kind"]) or tool["inherited_event"] or tool["turn_key"] in copied_turns:
            continue
        errors, denied = int(tool["status"] == "error"), int(tool["status"] == "denied")
        share.add("session", (), [1, errors], COUNTS.index("total_tool_calls"))
        places: list[tuple[str, Key]] = [("tool", _tool_key(tool))]
        if tool["server_name"] is not None:
            places.append(("mcp", _mcp_key(tool)))
        for section, place in places:
            share.add(section, place, [1, errors, denied, tool["bytes_sent"], tool["duration_ms"]])
            share.add(section, place, [tool["bytes_received"]], TOOL.index("total_bytes"))
    return share


def _figures(part: _Part) -> Vector:
    """Under the names of ``FIGURES``."""
    return [
        *(part.figures[name] for name in (*_TOKENS, "usage_reported", "usage_total")),
        part.overlay["cost_micro_usd"],
        int(part.overlay["unpriced"]),
    ]


def _fitting(names: Sequence[str], vector: Vector) -> Row:
    return {name: add([value]) for name, value in zip(names, vector, strict=True)}


def _session(rows: SessionRows, share: Share) -> Row:
    facts = rows.facts
    counts = dict(zip(COUNTS, share.whole(), strict=False))
    inherited = share.sums["inherited"].get(())
    usage = None if inherited is None else _fitting(FIGURES, inherited)
    return {
        **{name: facts[name] for name in ("name", "agent", "mode", "status", "kind")},
        **{
            name: facts[name]
            for name in ("created_at", "last_activity_at", "stopped_at", "models", "message_count")
        },
        "turn_count": counts["turn_count"],
        **{
            name: facts[name]
            for name in ("total_requests", "allowed_requests", "denied_requests", "error_requests")
        },
        "model_call_count": counts["model_call_count"],
        "failed_model_calls": counts["failed_model_calls"],
        **_fitting(FIGURES, share.whole()[len(COUNTS) :]),
        "total_tool_calls": counts["total_tool_calls"],
        "tool_errors": counts["tool_errors"],
        **{name: facts[name] for name in ("total_file_events", "exec_count", "audit_event_count")},
        **{name: facts[name] for name in ("guard_blocks", "guard_coercions")},
        "open_gaps": rows.open_gaps,
        "conflicts": rows.conflicts,
        "dead_letters": rows.dead_letters,
        "grade": _grade(rows, share),
        "detail": rows.detail,
        "inherited_usage": None
        if usage is None
        else {
            **{name: usage[f"{name}_tokens"] for name in BUCKETS},
            "reported": usage["usage_reported"],
            "total": usage["usage_total"],
        },
    }


def _grade(rows: SessionRows, share: Share) -> str:
    """The worst that holds (contract 13). What lies in a turn is in the turn's grade already."""
    counts = dict(zip(COUNTS, share.whole(), strict=False))
    if rows.conflicts:
        return "disputed"
    if rows.open_gaps or counts["turns_with_gaps"]:
        return "gaps"
    if counts["partial"] or rows.loose_checks & USAGE_GAPS:
        return "partial"
    return "unknown" if rows.facts["stream_grade"] == "unknown" else "complete"


def _ai_usage(kind: str, share: Share) -> list[Row]:
    return [
        {"provider": provider, "model": model, "kind": kind, **_fitting(AI, vector)}
        for (provider, model), vector in _sorted(share.sums["ai"])
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


def _tool_usage(kind: str, sums: Mapping[Key, Vector], names: tuple[str, str]) -> list[Row]:
    return [
        {**dict(zip(names, key, strict=True)), "kind": kind, **_fitting(TOOL, vector)}
        for key, vector in _sorted(sums)
    ]


def _hour_parts(share: Share) -> list[Row]:
    return [
        {"hour": hour, "provider": provider, "model": model, **_fitting(HOURLY, vector)}
        for (hour, provider, model), vector in _sorted(share.sums["hour"])
    ]


def _unpriced(share: Share) -> list[Row]:
    return [
        {
            "check": "unpriced_model",
            "severity": "warning",
            "row": {"provider": provider, "model": model, "calls": count},
        }
        for (provider, model), (count,) in _sorted(share.sums["unpriced"])
    ]


def _sorted(sums: Mapping[Key, Vector]) -> list[tuple[Key, Vector]]:
    return sorted(sums.items(), key=lambda item: _null_first(item[0]))


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
