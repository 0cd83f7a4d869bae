"""Reads one session's projected rows as the pure sums take them, and puts back what they say: only what moved, one COPY a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg

from turnledger.fold import columns
from turnledger.fold.model import Row
from turnledger.fold.order import ordered
from turnledger.fold.rollup import SessionRollup, SessionRows, TurnSums, overlay
from turnledger.fold.turns import membership, superseded_streams
from turnledger.rollup.pace import LEAST_SECONDS
from turnledger.store.copying import copy
from turnledger.store.named import query
from turnledger.store.prices import State
from turnledger.store.read import session_events
from turnledger.store.vacuumed import kept_of, late_events
from turnledger.store.write import FINDINGS
from turnledger.store.write_binary import RowEncoder

Connection = psycopg.Connection[Any]

_SESSION = (("session_no", "int8"),)
_TURN = (*_SESSION, ("turn_no", "int4"))
CALL_OVERLAY = RowEncoder(_TURN, columns.CALL_OVERLAY)
PART_OVERLAY = RowEncoder(_TURN, columns.PART_OVERLAY)
REPRICED = RowEncoder(_TURN, columns.REPRICED)
TURN_OVERLAY = RowEncoder((*_TURN, ("digest", "text")), columns.TURN_OVERLAY)
HOUR_PARTS = RowEncoder((*_SESSION, ("tenant", "text")), columns.HOUR_PARTS)
HOUR_MARK = RowEncoder((("tenant", "text"),), columns.HOUR_PARTS[:3])
ROLLUPS = {
    "sessions": columns.SESSIONS,
    "ai_usage": columns.AI_USAGE,
    "tool_usage": columns.TOOL_USAGE,
    "mcp_usage": columns.MCP_USAGE,
}
_ROLLUP_ROWS = {table: RowEncoder(_SESSION, listed) for table, listed in ROLLUPS.items()}
_ROLLUP_KEYS = {
    "sessions": (),
    "ai_usage": ("provider", "model"),
    "tool_usage": ("tool_name", "origin"),
    "mcp_usage": ("server_name", "tool_name"),
}
_HOUR_KEY = ("hour", "provider", "model")
Place = tuple[int, int]
"""(level, block) of a kept share."""
_REPRICED_KEY = ("call_key", "part_key", "run_no")

DERIVED = ("call_overlay", "part_overlay", "turn_overlay", "repriced", *ROLLUPS)
"""Tables of which a session's rows follow from its projected rows, its family and prices alone, beside ``hour_parts`` and findings."""


def _names(listed: Iterable[columns.Column], *more: str) -> tuple[str, ...]:
    return (*more, *(name for name, _ in listed))


CALLS = tuple(
    name
    for name in _names(columns.MODEL_CALLS)
    if name
    not in {
        "trace_id", "protocol", "error_class", "status_code", "stop_reason", "method", "path", "started_at", "completed_at", "ttft_ms",
        "retries", "usage_source", "peak_input_tokens", "context_tokens", "context_window", "messages_count", "tools_count", "request_bytes",
        "response_bytes", "reported_cost_usd",
    }
)  # fmt: skip
"""The columns of a call that sums and owners depend on: half of them."""

READ: dict[str, tuple[str, tuple[str, ...]]] = {
    "facts": ("session_facts", _names(columns.FACTS)),
    "turns": ("turns", ("turn_no", "digest", "turn_key", "kind", "inherited", "grade")),
    "calls": ("model_calls", (*CALLS, "turn_no")),
    "tools": (
        "tool_calls",
        (
            *(
                "tool_key",
                "turn_key",
                "tool_name",
                "origin",
                "server_name",
                "status",
                "pairing",
                "duration_ms",
            ),
            *("bytes_sent", "bytes_received", "kind", "inherited_event", "turn_no"),
        ),
    ),
    "contributions": ("usage_parts", _names(columns.USAGE_PARTS, "turn_no")),
    "call_overlay": ("call_overlay", _names(columns.CALL_OVERLAY, "turn_no")),
    "part_overlay": ("part_overlay", _names(columns.PART_OVERLAY, "turn_no")),
    "repriced": ("repriced", _names(columns.REPRICED, "turn_no")),
    "turn_overlay": ("turn_overlay", _names(columns.TURN_OVERLAY, "turn_no", "digest")),
    "hour_parts": ("hour_parts", _names(columns.HOUR_PARTS)),
    "call_claims": ("call_claims", ("identity", "call_key", "content", "turn_no")),
    **{table: (table, _names(listed)) for table, listed in ROLLUPS.items()},
}
"""What is read of a session: (table, columns)."""
BY_TURN = frozenset(
    (
        *("turns", "calls", "tools", "contributions"),
        *("call_overlay", "part_overlay", "repriced", "turn_overlay", "call_claims"),
    )
)
"""What of it stands beside turns, so that it can be read of some of them alone."""
ALSO = (
    *("session", "conflicts", "dead_letters", "loose_checks", "open_gaps"),
    *("redacted_events", "redacted_count", "rollup_findings", "price_state", "vacuum"),
)


PAUSE_FACTOR = 10
"""A session is due again after 10 times what its last roll-up took: a busy one takes at most a tenth of a worker (design 5)."""


class Torn(Exception):
    """Rows of one session are of two commits: ingest wrote in between. Its mark is there already; read again."""


@dataclass(slots=True)
class Loaded:
    """One session as the projections hold it."""

    session_no: int
    turns: frozenset[int] | None
    """The numbers of the turns that were read, beside what stands outside of turns; None: all of them."""
    rows: SessionRows
    turn_numbers: dict[str, int]
    """turn_key: turn_no."""
    digests: dict[str, str]
    """turn_key: digest of its record."""
    conflicts: list[Row]
    dead_letters: list[Row]
    redactions: list[Row]
    """The first events that ingest had to redact …"""
    redacted: int
    """… of so many."""
    before: dict[str, list[Row]]
    """By table: what the last roll-up set of the turns that were read, and of the session."""
    prices: State
    """Which prices there are."""
    late: list[Row]
    """The first events that came after a vacuum …"""
    late_count: int
    """… of so many."""
    once: bool
    """No row stands beside two turns."""

    @property
    def vacuumed(self) -> bool:
        """Its events and records are gone: its sums stay, from what is kept of it (contract 12)."""
        return self.rows.detail == "vacuumed"


class Statements:
    """The named queries of one generation on one connection. Rows come as dicts, instants in µs."""

    def __init__(
        self, connection: Connection, slot: str, *, shadow: bool = False, pause: float = LEAST_SECONDS
    ) -> None:
        """``connection`` loads instants as µs (``store.instants``); ``slot``: schema of the generation, from ``store.read.writable_slot``.
        ``shadow``: of a generation that is being built, whose marks are its own (design 6). ``pause``: seconds for which a session that was rolled
        up is left alone at least."""
        self.connection = connection
        self.slot = slot
        self.shadow = shadow
        self.pause = pause
        self._texts: dict[tuple[str, str], bytes] = {}

    def text(self, name: str, table: str = "", listed: Sequence[str] = (), alias: str = "") -> bytes:
        """A query, for this generation and a table and columns of ours."""
        found = self._texts.get((name, table))
        if found is None:
            found = (
                query(f"rollup/{name}")
                .replace(b"{slot}", self.slot.encode())
                .replace(b"{table}", table.encode())
            )
            if self.shadow:
                found = found.replace(b"ledger.marks", b"ledger.shadow_marks")
            shown = ", ".join(f'{alias}"{column}"' for column in listed)
            found = self._texts[name, table] = found.replace(b"{columns}", shown.encode())
        return found

    def rows(self, name: str, **values: object) -> list[Row]:
        with self.connection.cursor(binary=True) as cursor:
            cursor.execute(self.text(name), values)
            return rows_of(cursor)

    def value(self, name: str, **values: object) -> Any:
        """The first column of the first row, None without a row."""
        row = self.connection.execute(self.text(name), values).fetchone()
        return None if row is None else row[0]

    def run(self, name: str, table: str = "", **values: Any) -> None:
        """Change rows."""
        self.connection.execute(self.text(name, table), values)

    def known_claims(self, session_no: int) -> tuple[set[Any], set[Any]] | None:
        """What ``claims.claims_of`` said of the session in this transaction, where it was asked before."""
        return None

    def take_marks(self, sessions: Sequence[int]) -> list[Row]:
        """Take the marks of sessions whose locks are held: {session_no, turns, basis} of each, the numbers of the turns that it is about (None: it may
        be any), and what the shares of a long session were made for (None where it has none)."""
        return self.rows("take_shadow_marks" if self.shadow else "take_marks", sessions=list(sessions))

    def mark_turns(self, turns: Mapping[int, Collection[int] | None]) -> None:
        """Mark sessions: with the numbers of the turns that it is about, None for any."""
        self.run("mark_turns", sessions=list(turns), turns=list(map(array, turns.values())))

    def rolled_up(self, sessions: Sequence[int], seconds: float) -> None:
        """They were, in ``seconds`` each: note when they are due again, or of a generation that is being built that they have to be compared (again)."""
        if self.shadow:
            self.connection.execute(query("replay/doubt"), {"sessions": list(sessions)})
            return
        pause = max(self.pause, PAUSE_FACTOR * seconds)
        self.run("due", sessions=list(sessions), seconds=pause, took_ms=round(seconds * 1000))

    def session(self, session_no: int, turns: Collection[int] | None = None) -> dict[str, list[Row]]:
        """Everything of ``READ`` and ``ALSO`` of one session in one round trip: 20 of them would take longer than the rest. ``turns``: of what
        stands beside turns, only these and what stands outside."""
        some = frozenset() if turns is None else BY_TURN
        texts = {
            name: self.text("projected_turns" if name in some else "projected", table, listed)
            for name, (table, listed) in READ.items()
        }
        texts |= {name: self.text(name) for name in ALSO}
        given = {"session_no": session_no, "turns": sorted(turns or ())}
        with self.connection.pipeline():
            cursors = {
                name: self.connection.cursor(binary=True).execute(text, given) for name, text in texts.items()
            }
        return {name: rows_of(cursor) for name, cursor in cursors.items()}

    def shares(self, wanted: Mapping[int, Sequence[Place]], highest: int) -> list[Row]:
        """Kept shares of long sessions, {session_no, level, block, share}: those at the places that are wanted of each, and all of the highest level."""
        places = [(number, *place) for number, listed in wanted.items() for place in listed]
        numbers, levels, blocks = map(list, zip(*places, strict=True)) if places else ([], [], [])
        return self.rows(
            "shares", sessions=numbers, levels=levels, blocks=blocks, every=list(wanted), highest=highest
        )

    def copy(self, table: str, names: tuple[str, ...], rows: Sequence[bytes]) -> None:
        """Write rows of a table of this generation."""
        copy(self.connection, f"{self.slot}.{table}", names, rows)

    def calls_of(self, sessions: Sequence[int], keys: Sequence[str]) -> list[Row]:
        """The calls of these keys in these sessions, pair by pair, with ``session_id`` and ``session_no``."""
        with self.connection.cursor(binary=True) as cursor:
            wanted = (*CALLS, "turn_no")
            cursor.execute(self.text("calls_of", "", wanted, "c."), {"sessions": sessions, "keys": keys})
            return _once(rows_of(cursor), "session_no", "call_key")


def array(numbers: Collection[int] | None) -> str | None:
    """An array of integers as Postgres reads it: what a statement over many sessions has one of for each."""
    return None if numbers is None else "{" + ",".join(map(str, sorted(numbers))) + "}"


def rows_of(cursor: psycopg.Cursor[Any]) -> list[Row]:
    """All rows as dicts."""
    found = cursor.fetchall()
    if not found:
        return []
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found]


def _once(rows: Iterable[Row], *key: str) -> list[Row]:
    """One row a key. What moves from an open turn to one that ended stands in both until ingest writes the open one, which marks its session:
    which of the two counts until then does not matter, that everybody counts one does."""
    return list({tuple(row[name] for name in key): row for row in rows}.values())


def load(do: Statements, session_no: int, numbers: Collection[int] | None = None) -> Loaded | None:
    """Everything that the sums of a session are made from, or (``numbers``) that of some of its turns and of what stands outside of turns; None where
    ingest has not projected it (any more). Which turns are disputed is known of the whole alone."""
    found = do.session(session_no, numbers)
    if not found["session"] or not found["facts"]:
        return None
    turns, conflicts = found["turns"], found["conflicts"]
    gone = found["vacuum"][0]["vacuumed"]
    kept = kept_of(do.connection, [session_no])[session_no] if gone else None
    late, late_count = ([], 0) if kept is None else late_events(do.connection, session_no, kept)
    if kept is not None:
        disputed = kept.disputed_turns
    elif numbers is not None:
        disputed = frozenset()
    else:
        disputed = disputed_turns(do.connection, session_no, conflicts)
    rows = SessionRows(
        tenant=found["session"][0]["tenant"],
        session_id=found["session"][0]["session_id"],
        facts=found["facts"][0],
        turns=turns,
        calls=_once(found["calls"], "call_key"),
        tools=_once(found["tools"], "tool_key"),
        contributions=_once(found["contributions"], "part_key"),
        loose_checks=frozenset(row["check"] for row in found["loose_checks"]),
        open_gaps=found["open_gaps"][0]["ranges"] if kept is None else kept.open_gaps,
        conflicts=len(conflicts),
        dead_letters=len(found["dead_letters"]),
        disputed_turns=disputed,
        detail="full" if kept is None else "vacuumed",
    )
    return Loaded(
        session_no,
        None if numbers is None else frozenset(numbers),
        rows,
        {turn["turn_key"]: turn["turn_no"] for turn in turns},
        {turn["turn_key"]: turn["digest"] for turn in turns},
        conflicts,
        found["dead_letters"],
        found["redacted_events"],
        found["redacted_count"][0]["events"],
        {table: found[table] for table in (*DERIVED, "hour_parts", "call_claims", "rollup_findings")},
        State(**found["price_state"][0]),
        late,
        late_count,
        (len(rows.calls), len(rows.tools), len(rows.contributions))
        == (len(found["calls"]), len(found["tools"]), len(found["contributions"])),
    )


def disputed_turns(connection: Connection, session_no: int, conflicts: Sequence[Row]) -> frozenset[str]:
    """Turns with the kept event of a conflict (contract 13). Membership is decided on the whole set, so a disputed session is read whole."""
    if not conflicts:
        return frozenset()
    places = {
        tuple(row[name] for name in ("producer", "epoch", "stream", "seq", "receipt_key"))
        for row in conflicts
    }
    events = session_events(connection, session_no)
    left_out = superseded_streams(events)
    kept = [event for event in events if (event.producer, event.epoch, event.stream) not in left_out]
    return frozenset(
        turn.key
        for turn in membership(ordered(kept)).turns
        for event in turn.events
        if (
            event.producer,
            event.epoch,
            event.stream,
            event.seq,
            None if event.seq is not None else event.receipt_key,
        )
        in places
    )


# --- writing ----------------------------------------------------------------------------------------------------------------------


def put(do: Statements, loaded: Loaded, rollup: SessionRollup, findings: Sequence[Row]) -> None:
    """Set all rows of a session that follow from others, and mark the hours that are stale now.

    ``findings``: groups as ``fold.findings.grouped`` gives them. Raises :class:`Torn`.
    """
    moved = _put_calls(do, loaded, rollup)
    _put_beside_turns(
        do, loaded, "part_overlay", PART_OVERLAY, columns.PART_OVERLAY, ("part_key",), rollup.parts
    )
    _put_beside_turns(do, loaded, "repriced", REPRICED, columns.REPRICED, _REPRICED_KEY, rollup.repriced)
    _put_turns(do, loaded, rollup, moved)
    for table, listed in ROLLUPS.items():
        rows = [rollup.session] if table == "sessions" else getattr(rollup, table)
        _set(do, loaded, table, _ROLLUP_ROWS[table], _names(listed), _ROLLUP_KEYS[table], rows)
    _put_findings(do, loaded, findings)
    _put_hours(do, loaded.session_no, loaded.rows.tenant, loaded.before["hour_parts"], rollup.hour_parts)


def remove(do: Statements, session_no: int) -> None:
    """Take back everything of a session that is projected no more."""
    found = do.session(session_no)
    for table in (*DERIVED, "call_claims", "rollup_shares"):
        do.run("delete", table, sessions=[session_no])
    do.run("delete_findings", sessions=[session_no])
    if found["session"]:
        _put_hours(do, session_no, found["session"][0]["tenant"], found["hour_parts"], [])


def _put_calls(do: Statements, loaded: Loaded, rollup: SessionRollup) -> set[str]:
    """Keys of the calls whose overlay moved.

    A row that stands twice is replaced: one of the two alone would look unmoved.
    """
    beside = {call["call_key"]: call["turn_no"] for call in loaded.rows.calls}
    before = {(row["turn_no"], row["call_key"]): row for row in loaded.before["call_overlay"]}
    times = Counter((row["turn_no"], row["call_key"]) for row in loaded.before["call_overlay"])
    names = _names(columns.CALL_OVERLAY)
    now = {(beside[row["call_key"]], row["call_key"]): row for row in rollup.calls}
    moved = {
        place: row
        for place, row in now.items()
        if times[place] > 1 or not _same(before.get(place), row, names)
    }
    stale = [place for place in before if place not in now or place in moved]
    loose = [key for turn_no, key in stale if turn_no is None]
    if loose:
        do.run("delete_loose_calls", sessions=[loaded.session_no] * len(loose), keys=loose)
    if len(loose) < len(stale):
        turns, keys = zip(*(place for place in stale if place[0] is not None), strict=True)
        sessions = [loaded.session_no] * len(turns)
        do.run("delete_calls", sessions=sessions, turns=list(turns), keys=list(keys))
    _copy(
        do,
        "call_overlay",
        CALL_OVERLAY,
        [CALL_OVERLAY.encode(loaded.session_no, turn_no, row) for (turn_no, _), row in moved.items()],
    )
    return {key for _, key in moved}


def _put_beside_turns(
    do: Statements,
    loaded: Loaded,
    table: str,
    encoder: RowEncoder,
    listed: Sequence[columns.Column],
    key: Sequence[str],
    rows: Sequence[Row],
) -> None:
    """Replace the rows beside the turns that were read, and those outside of turns, unless they are what they were, each once."""
    beside = {("call_key", call["call_key"]): call["turn_no"] for call in loaded.rows.calls}
    beside |= {("part_key", part["part_key"]): part["turn_no"] for part in loaded.rows.contributions}
    placed = [
        {**row, "turn_no": beside[next((name, row[name]) for name in key if row[name] is not None)]}
        for row in rows
    ]
    before, names = loaded.before[table], _names(listed)
    old, new = _by(("turn_no", *key), before), _by(("turn_no", *key), placed)
    unique = len(old) == len(before)
    if unique and old.keys() == new.keys() and all(_same(old[one], new[one], names) for one in new):
        return
    if before and loaded.turns is None:
        do.run("delete", table, sessions=[loaded.session_no])
    elif before:
        turns = sorted({row["turn_no"] for row in before if row["turn_no"] is not None})
        do.run("delete_of_turns", table, sessions=[loaded.session_no] * len(turns), turns=turns)
        do.run("delete_loose", table, sessions=[loaded.session_no])
    _copy(do, table, encoder, [encoder.encode(loaded.session_no, row["turn_no"], row) for row in placed])


def _put_turns(do: Statements, loaded: Loaded, rollup: SessionRollup, moved_calls: set[str]) -> None:
    """Overlays of turns whose record, calls or sums moved: only their records are read."""
    before = {row["turn_no"]: row for row in loaded.before["turn_overlay"]}
    names = [name for name, _ in columns.TURN_OVERLAY if name != "overlay"]
    moved: dict[int, str] = {}
    for key, sums in rollup.turns.items():
        turn_no = loaded.turn_numbers[key]
        known = before.get(turn_no)
        if (
            known is None
            or known["digest"] != loaded.digests[key]
            or not _same(known, sums.row, names)
            or known["overlay"].get("inherited_usage") != sums.inherited_usage
            or any(call["call_key"] in moved_calls for call, _ in sums.calls)
        ):
            moved[turn_no] = key
    there = set(loaded.turn_numbers.values())
    stale = [number for number in before if number in moved or number not in there]
    if stale:
        do.run("delete_of_turns", "turn_overlay", sessions=[loaded.session_no] * len(stale), turns=stale)
    if not moved:
        return
    if loaded.vacuumed:
        _lay_kept(do, loaded, rollup, moved)
        return
    records = {
        row["turn_no"]: row for row in do.rows("records", session_no=loaded.session_no, turns=list(moved))
    }
    encoded = []
    for turn_no, key in moved.items():
        stored, sums = records.get(turn_no), rollup.turns[key]
        if stored is None or stored["digest"] != loaded.digests[key]:
            raise Torn(key)
        try:
            laid = overlay(orjson.loads(stored["record"]), sums)
        except ValueError as error:
            raise Torn(key) from error
        row = {**sums.row, "overlay": laid}
        encoded.append(TURN_OVERLAY.encode(loaded.session_no, turn_no, stored["digest"], row))
    _copy(do, "turn_overlay", TURN_OVERLAY, encoded)


def kept_overlay(sums: TurnSums) -> Row:
    """What is laid over a record that is gone: what the turn's sums alone tell."""
    return {} if sums.inherited_usage is None else {"inherited_usage": sums.inherited_usage}


def _lay_kept(do: Statements, loaded: Loaded, rollup: SessionRollup, moved: Mapping[int, str]) -> None:
    """Overlays of turns whose records are gone."""
    encoded = []
    for turn_no, key in moved.items():
        sums = rollup.turns[key]
        row = {**sums.row, "overlay": kept_overlay(sums)}
        encoded.append(TURN_OVERLAY.encode(loaded.session_no, turn_no, loaded.digests[key], row))
    _copy(do, "turn_overlay", TURN_OVERLAY, encoded)


def _put_findings(do: Statements, loaded: Loaded, findings: Sequence[Row]) -> None:
    before = sorted(loaded.before["rollup_findings"], key=lambda row: str(row["check"]))
    names = ("check", "severity", "count", "rows")
    if len(before) == len(findings) and all(
        _same(old, new, names) for old, new in zip(before, findings, strict=True)
    ):
        return
    if before:
        do.run("delete_findings", sessions=[loaded.session_no])
    _copy(
        do,
        "findings",
        FINDINGS,
        [FINDINGS.encode(loaded.session_no, None, "rollup", row) for row in findings],
    )


def _put_hours(
    do: Statements, session_no: int, tenant: str, before: Sequence[Row], after: Sequence[Row]
) -> None:
    """Replace the session's share where it moved and mark the buckets that are stale now (design 5, step 5)."""
    old, new = _by(_HOUR_KEY, before), _by(_HOUR_KEY, after)
    names = _names(columns.HOUR_PARTS)
    moved = [key for key in {**old, **new} if not _same(old.get(key), new.get(key), names)]
    if not moved:
        return
    gone = [key for key in moved if key in old]
    if gone:
        hours, providers, models = map(list, zip(*gone, strict=True))
        sessions = [session_no] * len(gone)
        do.run("delete_hours", sessions=sessions, hours=hours, providers=providers, models=models)
    rows = [HOUR_PARTS.encode(session_no, tenant, new[key]) for key in moved if key in new]
    _copy(do, "hour_parts", HOUR_PARTS, rows)
    marks = [HOUR_MARK.encode(tenant, dict(zip(_HOUR_KEY, key, strict=True))) for key in moved]
    _copy(do, "hour_marks", HOUR_MARK, marks)


def _set(
    do: Statements,
    loaded: Loaded,
    table: str,
    encoder: RowEncoder,
    names: Sequence[str],
    key: Sequence[str],
    rows: Sequence[Row],
) -> None:
    """Replace a session's rows of a table, unless they are what they were, each once."""
    before = loaded.before[table]
    old, new = _by(key, before), _by(key, rows)
    unique = len(old) == len(before)
    if unique and old.keys() == new.keys() and all(_same(old[one], new[one], names) for one in new):
        return
    if before:
        do.run("delete", table, sessions=[loaded.session_no])
    _copy(do, table, encoder, [encoder.encode(loaded.session_no, row) for row in rows])


def _by(key: Sequence[str], rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in key): row for row in rows}


def _copy(do: Statements, table: str, encoder: RowEncoder, rows: Sequence[bytes]) -> None:
    do.copy(table, tuple(encoder.names), rows)


def _same(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None, names: Iterable[str]) -> bool:
    if one is None or other is None:
        return one is other
    return all(one[name] == other[name] for name in names)
