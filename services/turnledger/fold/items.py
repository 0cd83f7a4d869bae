"""Owns the contents that went to a model and came from it (``model_items``), and which results it was handed (``tool_responses``; contract 11).

Rows are written once: each is a function of its event, of its place in its exchange, and of whether its content was there before. Nothing here
asks which turn an event belongs to. What is wrong with a payload is reported by the turn that has it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from hashlib import sha256
from typing import Any, Final

from turnledger.contract import fields
from turnledger.contract.canonical import dumps
from turnledger.contract.event import Event
from turnledger.fold.columns import MODEL_ITEMS, POINT_COMMON
from turnledger.fold.model import Row
from turnledger.fold.order import order_key
from turnledger.fold.points import common_row

ITEMS_TABLE: Final = "model_items"
RESPONSES_TABLE: Final = "tool_responses"

SUBMITTED: Final = "tool_results.submitted"
TYPES: Final = frozenset(
    ("message.recorded", "model_call.completed", "tool_call.requested", "tool_call.completed", SUBMITTED)
)
"""Event types that have rows here."""

_BY_ROLE: Final = {
    "system": "request",
    "user": "request",
    "assistant": "response",
    "tool": "tool_response",
}

Content = tuple[str, str, Any]
"""(item_type, payload field, what it holds)."""

ItemKey = tuple[str, int, str, int | None, str | None, str]
"""(producer, epoch, stream, seq, receipt_key, item_type): the identity of an item's row inside its session."""

Scope = str | int | None

ITEM_COLUMNS: Final = tuple(name for name, _ in (*POINT_COMMON, *MODEL_ITEMS))
_TYPE_AT: Final = ITEM_COLUMNS.index("item_type")
_INDEX_AT: Final = ITEM_COLUMNS.index("item_index")


def contents(event: Event) -> list[Content]:
    """What an event adds to the conversation, in order."""
    payload = event.payload
    type_ = event.type
    if type_ == "model_call.completed":
        found: list[Content] = []
        said = payload.get("thinking")
        if type(said) is str and said:
            found.append(("reasoning", "thinking", said))
        said = payload.get("text")
        if type(said) is str and said:
            found.append(("response", "text", said))
        return found
    if type_ == "message.recorded":
        return _message(event)
    if type_ == "tool_call.requested":
        if type(payload.get("tool_name")) is not str and payload.get("arguments") is None:
            return []
        return [("tool_call", "arguments", payload.get("arguments"))]
    if type_ == "tool_call.completed":
        for name in ("preview", "error_message"):
            said = payload.get(name)
            if type(said) is str and said:
                return [("tool_response", name, said)]
    return []


def _message(event: Event) -> list[Content]:
    payload = event.payload
    role = payload.get("role")
    kind = _BY_ROLE.get(role) if type(role) is str else None
    if kind is None:
        return []
    content = payload.get("content")
    if role == "user" and (event.tool_call_id is not None or _has_result(content)):
        kind = "tool_response"
    said = payload.get("text")
    if type(said) is str and said:
        return [(kind, "text", said)]
    return [(kind, "content", content)] if content else []


def _has_result(content: Any) -> bool:
    return type(content) is list and any(
        type(one) is dict and one.get("type") == "tool_result" for one in content
    )


class Item:
    """The row of an item before it is one: its event, and the values of its columns. Thousands a second are written as such."""

    __slots__ = ("content", "event", "scope", "values")

    def __init__(self, event: Event, scope: Scope, values: tuple[Any, ...], content: Any) -> None:
        self.event = event
        self.scope = scope
        self.values = values
        """Of ``POINT_COMMON`` and ``MODEL_ITEMS``, in their order."""
        self.content = content

    @property
    def key(self) -> ItemKey:
        """As ``item_key`` tells it of the row."""
        event = self.event
        seq = event.seq
        return (
            event.producer,
            event.epoch,
            event.stream,
            seq,
            event.receipt_key if seq is None else None,
            self.values[_TYPE_AT],
        )

    @property
    def index(self) -> int:
        found: int = self.values[_INDEX_AT]
        return found

    def row(self) -> Row:
        """With its position, and what it holds under ``content``."""
        event = self.event
        return {
            "producer": event.producer,
            "epoch": event.epoch,
            "stream": event.stream,
            "seq": event.seq,
            "receipt_key": None if event.seq is not None else event.receipt_key,
            **dict(zip(ITEM_COLUMNS, self.values, strict=True)),
            "content": self.content,
        }


class _Said:
    """What was said in one scope."""

    __slots__ = ("exchanges", "held")

    def __init__(self) -> None:
        self.held: dict[tuple[str, str | None, str | None, bytes | None], bytes] = {}
        """Place of the event whose row stands, by what makes two items one."""
        self.exchanges: dict[str | None, tuple[int, bytes]] = {}
        """(items so far, place of the last) of a model call, and of what names none."""


class Items:
    """The items of one session, deduplicated and counted. Feed it events in the order of contract 5."""

    __slots__ = ("_exchanges", "_held", "_scopes", "gone")

    def __init__(self) -> None:
        self._scopes: dict[Scope, _Said] = {}
        self._held = self._exchanges = 0
        self.gone: set[Scope] = set()
        """Scopes that were let go of: an event with a content in one of them is refused."""

    @property
    def size_bytes(self) -> int:
        """Estimate, for an LRU by bytes."""
        return 350 * self._held + 250 * self._exchanges + 600 * len(self._scopes) + 150 * len(self.gone)

    def forget(self, scopes: Iterable[Scope]) -> None:
        """Let go of what was said in these scopes."""
        for scope in scopes:
            said = self._scopes.pop(scope, None)
            if said is not None:
                self._held -= len(said.held)
                self._exchanges -= len(said.exchanges)
                self.gone.add(scope)

    def add(self, event: Event) -> list[Item] | None:
        """An event's new items. None: it does not come last in its exchange, or what it says was said later before it, or its scope was
        let go of.

        Then rows that were given may be others, and only the whole set tells which.
        """
        found = contents(event)
        if not found:
            return []
        place = order_key(event)
        scope = scope_of(event)
        said = self._scopes.get(scope)
        if said is None:
            if scope in self.gone:
                return None
            said = self._scopes[scope] = _Said()
        exchange = event.model_call_id
        known = said.exchanges.get(exchange)
        if known is None:
            index = 0
            self._exchanges += 1
        else:
            index, last = known
            if place < last:
                return None
        payload = event.payload
        role = name = provider = model = None
        if event.type == "tool_call.requested":
            name = fields.text(payload, "tool_name")
        elif event.type == "message.recorded":
            role = payload["role"]
        elif event.type == "model_call.completed":
            provider, model = fields.text(payload, "provider"), fields.text(payload, "model")
        origin = event.origin
        items: list[Item] = []
        for type_, field, content in found:
            index += 1
            data = _bytes(content)
            told = sha256(data) if data is not None else None
            key = (type_, event.tool_call_id, name, told.digest() if told is not None else None)
            before = said.held.setdefault(key, place)
            if before is not place:
                if place < before:
                    return None
                continue
            self._held += 1
            values = (
                event.event_id,
                event.at,
                event.trace_id,
                event.turn_id,
                event.turn_index,
                event.model_call_id,
                event.tool_call_id,
                event.kind,
                None if origin is None else origin.get("process"),
                None if origin is None else origin.get("pid"),
                index,
                type_,
                role,
                name,
                provider,
                model,
                told.hexdigest() if told is not None else None,
                len(data) if data is not None else None,
                field,
            )
            items.append(Item(event, scope, values, content))
        said.exchanges[exchange] = (index, place)
        return items


class Told:
    """Which rows of ``model_items`` were written, and the ``item_index`` of each: the rest of a row is its event's."""

    __slots__ = ("_count", "_scopes")

    def __init__(self) -> None:
        self._scopes: dict[Scope, dict[ItemKey, int]] = {}
        self._count = 0

    @property
    def size_bytes(self) -> int:
        """Estimate, for an LRU by bytes."""
        return 250 * self._count + 300 * len(self._scopes)

    def index(self, scope: Scope, key: ItemKey) -> int | None:
        """Of a row; None where it was not written."""
        told = self._scopes.get(scope)
        return None if told is None else told.get(key)

    def tell(self, scope: Scope, key: ItemKey, index: int) -> bool:
        """Note a row. Returns whether there is one to replace."""
        told = self._scopes.get(scope)
        if told is None:
            told = self._scopes[scope] = {}
        known = key in told
        told[key] = index
        self._count += not known
        return known

    def keep(self, keys: Container[ItemKey]) -> list[ItemKey]:
        """Forget all but these; those that were forgotten."""
        lost: list[ItemKey] = []
        for told in self._scopes.values():
            gone = [key for key in told if key not in keys]
            for key in gone:
                del told[key]
            lost += gone
        self._count -= len(lost)
        return lost

    def forget(self, scopes: Iterable[Scope]) -> None:
        """Let go of these scopes."""
        for scope in scopes:
            self._count -= len(self._scopes.pop(scope, ()))


def scope_of(event: Event) -> Scope:
    """The trace of an event; where it names none, its turn is one causal chain too. None: the session."""
    return _scope(event.trace_id, event.turn_id, event.turn_index)


def row_scope(row: Row) -> Scope:
    """``scope_of`` the event of an item's row."""
    return _scope(row["trace_id"], row["turn_id"], row["turn_index"])


def _scope(trace_id: str | None, turn_id: str | None, turn_index: int | None) -> Scope:
    if trace_id is not None:
        return "/" + trace_id
    return turn_index if turn_id is None else "#" + turn_id


def _bytes(content: Any) -> bytes | None:
    """What is hashed of a content: its text, else its canonical JSON."""
    if type(content) is str:
        return content.encode()
    return None if content is None else dumps(content)


def item_key(row: Row) -> ItemKey:
    """The identity of an item's row."""
    return (
        row["producer"],
        row["epoch"],
        row["stream"],
        row["seq"],
        row["receipt_key"],
        row["item_type"],
    )


def response_rows(event: Event) -> Iterator[Row]:
    """One row for each id of a ``tool_results.submitted``, each id once; ``model_call_id`` is the call that consumes them."""
    named = event.payload.get("tool_call_ids")
    if type(named) is not list:
        return
    known: set[str] = set()
    for index, name in enumerate(named, 1):
        if type(name) is not str or name in known:
            continue
        known.add(name)
        row = common_row(event)
        row["tool_call_id"] = name
        row["response_index"] = index
        row["context_tokens"] = fields.count(event.payload, "context_tokens")
        yield row


def fold_items(events: Iterable[Event], items: Items) -> dict[str, list[Row]]:
    """Rows by table of one session's events, given in order; tables without rows are left out."""
    rows: dict[str, list[Row]] = {}
    for event in events:
        if event.type not in TYPES:
            continue
        if event.type == SUBMITTED:
            found = list(response_rows(event))
            table = RESPONSES_TABLE
        else:
            new = items.add(event)
            assert new is not None, "events were given in order"
            found = [item.row() for item in new]
            table = ITEMS_TABLE
        if found:
            rows.setdefault(table, []).extend(found)
    return rows
