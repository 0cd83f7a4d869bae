"""`turnledger sessions timeline`: a session as numbered lines, read and written a page at a time. Writes nothing but its output."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO, Any

import psycopg

from turnledger.contract.event import Event
from turnledger.contract.times import utc_text
from turnledger.doctor.conversation import ASST, CODES, TYPES, USER, Conversation, Line, Recent, every
from turnledger.doctor.line import Page, begin, fit
from turnledger.doctor.rows import told as rows_of
from turnledger.doctor.tables import UNKNOWN
from turnledger.store.named import query
from turnledger.store.read import SessionRef, active_slot
from turnledger.store.story import emitted, story

Row = dict[str, Any]
Numbered = tuple[int, Line]

STYLES = {"USER": "bold cyan", "TOOL": "yellow", "RES": "green", "ASST": "bold magenta"}
ERROR_STYLE = "red"

SPEAKS = ("message.recorded", "model_call.completed", "answer.finalized")
_LEAST_TEXT = 8


def timeline(
    connection: psycopg.Connection[Any], session: SessionRef, *, everything: bool = False
) -> Iterator[Numbered]:
    """The lines of a session, numbered from 0: the conversation, or ``everything``, a line an event.

    ``connection`` is in autocommit; memory does not grow with the session.
    """
    return enumerate(_lines(connection, session, everything))


def _lines(connection: psycopg.Connection[Any], session: SessionRef, everything: bool) -> Iterator[Line]:
    slot = active_slot(connection)
    conversation, names = Conversation(), Recent()
    for page in story(connection, session.session_no, types=None if everything else TYPES):
        speaking = (one for one in page if one.type in SPEAKS)
        asked = Asked(emitted(connection, slot, session.session_no, speaking))
        for event in page:
            tool_calls = asked.by(event) if event.type in SPEAKS else None
            if everything:
                yield every(event, names, tool_calls)
            else:
                yield from conversation.read(event, tool_calls)
    yield from conversation.end()


class Asked:
    """How many tools model calls asked for, as far as that is known. Rows as ``store.story.emitted`` gives them."""

    def __init__(self, rows: Iterable[tuple[str | None, int | None, str | None, int]]) -> None:
        self._by_turn_id: defaultdict[str, _Counts] = defaultdict(_counts)
        self._by_turn_index: defaultdict[int, _Counts] = defaultdict(_counts)
        self._anywhere = _counts()
        for turn_id, turn_index, call, count in rows:
            self._anywhere[call].append(count)
            if turn_id is not None:
                self._by_turn_id[turn_id][call].append(count)
            if turn_index is not None:
                self._by_turn_index[turn_index][call].append(count)

    def by(self, event: Event) -> int | None:
        """Of the model call that an event names. Null where it names none, or where tools of its turn were asked for by nobody knows whom."""
        call = event.model_call_id
        if call is None:
            return None
        if event.turn_id is not None:
            here = self._by_turn_id.get(event.turn_id, {})
        elif event.turn_index is not None:
            here = self._by_turn_index.get(event.turn_index, {})
        else:
            here = self._anywhere
        counts = here.get(call, ())
        if len(counts) == 1:
            return counts[0]
        return None if counts or None in here else 0


_Counts = dict[str | None, list[int]]
"""Tools that were asked for, by the model call that asked; a number for each turn that has a call of that id."""


def _counts() -> _Counts:
    return defaultdict(list)


def chosen(
    lines: Iterator[Numbered], *, first: int = 0, count: int | None = None, last: int | None = None
) -> Iterator[Numbered]:
    """``count`` lines from line ``first`` on, or the ``last`` few."""
    if last is not None:
        return iter(deque(lines, maxlen=last))
    return islice(lines, first, None if count is None else first + count)


def why_nothing(connection: psycopg.Connection[Any], session: SessionRef, *, everything: bool) -> str:
    """What to say where there is no line."""
    key = {"tenant": session.tenant, "session_id": session.session_id}
    row = next(iter(rows_of(connection, query("read/session_rollup"), key)), None)
    if row is not None and row["detail"] == "vacuumed":
        return "no lines: a vacuum let go of this session's events; `turnledger sessions show` has its sums."
    if everything:
        return "no events here."
    return "no lines here: nothing was said yet, or the harness does not tell it; --all shows every event."


# --- for people -------------------------------------------------------------------------------------------------------------------


def write_lines(page: Page, lines: Iterable[Numbered], *, times: bool = False) -> int:
    """One line each, none longer than the page is wide; how many there were."""
    written = 0
    for number, line in lines:
        page.write(shown(page, number, line, times=times))
        written += 1
    return written


def shown(page: Page, number: int, line: Line, *, times: bool = False) -> str:
    """``[N] USER "…"``, ``[N] TOOL name args``, ``[N] RES name preview``, ``[N] ASST tool_calls=K "…"``; others ``[N] type detail``."""
    before = f"[{number}] "
    if times:
        at = line.event.running
        before += f"{UNKNOWN if at is None else utc_text(at)[:23]} "
    quoted = line.code in (USER, ASST)
    style = STYLES.get(line.code, "dim")
    if line.text is not None and line.text.startswith(("error: ", "denied by ")):
        style = ERROR_STYLE
    # A type is a text of the ledger as well.
    code = line.code if line.code in CODES else begin(line.code, max(page.columns - len(before), _LEAST_TEXT))
    middle = ""
    if line.code == ASST:
        middle = f" tool_calls={UNKNOWN if line.tool_calls is None else line.tool_calls}"
    elif line.code in CODES and not quoted:
        middle = f" {begin(line.name, 32)}"
    room = page.columns - len(before) - len(code) - len(middle) - 1 - (2 if quoted else 0)
    said = "" if line.text is None or room < 1 else begin(line.text, room)
    if said:
        said = f' "{said}"' if quoted else f" {said}"
    if room < 1:  # a very narrow terminal: the head alone is too long
        return fit(f"{before}{code}{middle}", page.columns)
    return f"{page.paint(before, 'dim')}{page.paint(code, style)}{page.paint(middle, 'bold')}{said}"


# --- for scripts ------------------------------------------------------------------------------------------------------------------


def write_json(out: IO[str], session: SessionRef, lines: Iterable[Numbered], *, payloads: bool) -> int:
    """{tenant, session_id, lines: [...]}, written as it is read; how many lines there were."""
    head = json.dumps({"tenant": session.tenant, "session_id": session.session_id})
    out.write(f'{head[:-1]}, "lines": [')
    written = 0
    for number, line in lines:
        out.write((", " if written else "") + json.dumps(as_row(number, line, payload=payloads)))
        written += 1
    out.write("]}\n")
    return written


def as_row(number: int, line: Line, *, payload: bool) -> Row:
    """One line whole; nothing is cut."""
    event = line.event
    row: Row = {
        "n": number,
        "code": line.code,
        "text": line.text,
        "tool_name": line.name,
        "tool_calls": line.tool_calls,
        "type": event.type,
        "at": None if event.at is None else utc_text(event.at),
        "producer": event.producer,
        "epoch": event.epoch,
        "stream": event.stream,
        "seq": event.seq,
        "receipt_key": None if event.seq is not None else event.receipt_key,
        "event_id": event.event_id,
        "turn_id": event.turn_id,
        "turn_index": event.turn_index,
        "trace_id": event.trace_id,
        "model_call_id": event.model_call_id,
        "tool_call_id": event.tool_call_id,
        "provenance": event.provenance,
    }
    if payload:
        row["payload"] = event.payload
    return row
