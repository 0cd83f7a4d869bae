"""Owns the redaction of a record (contract 14): headers, slots, bodies, and secrets by shape wherever they stand. Pure, and the same at the publisher,
at the collector, at ingest and in ``turnledger fold``: what is redacted once is not changed by the next.

A redaction is recorded in the event, in ``payload.redactions``: what, where, how many. The shapes are in ``contract.shapes``.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from turnledger.contract.canonical import content_hash, dumps
from turnledger.contract.envelope import LIMITS
from turnledger.contract.jsontext import JsonError, parse
from turnledger.contract.shapes import (
    DIGEST,
    REFERENCE,
    SECRET_NAMES,
    hide,
    hide_bytes,
    is_secret_value,
    kind_of,
    matcher,
    plain,
    reference,
    suspicious,
)

ALLOWED_HEADERS = frozenset(
    (
        "accept", "content-encoding", "content-length", "content-type", "date", "host", "server", "transfer-encoding", "user-agent",
    )
)  # fmt: skip
"""Headers whose values are shown."""
NOTE = "redactions"
"""Payload field that records what was redacted: a list of {what, where, count}."""
TAKEN_NOTE = "turnledger_redactions"
"""The same where the payload has something of its own under that name."""
MOST_NOTES = 64
"""Places told apart; what is redacted in more stands under ``elsewhere``."""
MOST_PLACE = 200
"""Characters of a place."""
AT_ONCE = (1024, 32, 1)
"""Records looked at together, and in steps, those among which something was seen. (Of 775 bytes, 1,024 at once take 0.8 µs each, 64 take 1.4.)"""
BODY_LIMIT = 64 * 1024
"""Bytes of a body that a publisher lets through where bodies are on, unless set."""
BODY = "body.recorded"
SLOT_TYPES = ("slot.written", "state.observed", "transition.decided")

_HEADER_FIELD = re.compile(r"(?:.*[._-])?headers|.*[a-z]Headers", re.ASCII)
_HEADER_ATTRIBUTE = re.compile(r"http\.(?:request|response)\.header\.(.+)")
_HEADER_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*)")
_HASHED = re.compile(r"hash:[0-9a-f]{12}")
_SLOT = re.compile(r"redacted:(?:text|number|boolean|list|object):[0-9a-f]{12}")
_SECRET_FIELD = re.compile(rf"(?i:{SECRET_NAMES}|(?:proxy-)?authorization)")
_SCHEMES = re.compile(r"(?i:(bearer|basic|token|apikey|negotiate)\s+)(\S{6,})")

_FIELDS_SEEN = matcher(r"""(?-u:eaders"|eaders\\|[.]header[.]|body\.recorded)""")
_SLOTS_SEEN = matcher(r"(?-u:slot\.written|state\.observed|transition\.decided)")


@dataclass(frozen=True, slots=True)
class Note:
    """One place of an event in which something was redacted."""

    what: str
    """``header`` ``slot`` ``body``, or the kind of the secret, as in its reference."""
    where: str
    """Path from the record's top; ``[]`` is any item of a list."""
    count: int

    def row(self) -> dict[str, Any]:
        return {"what": self.what, "where": self.where, "count": self.count}


class Redacted(NamedTuple):
    """A record that is not stored as it came."""

    raw: bytes
    """What is stored: canonical JSON."""
    received_sha256: bytes
    """Content hash (contract 3) of what came: identity is judged by it."""
    notes: tuple[Note, ...]

    def rows(self) -> list[dict[str, Any]]:
        """The notes as findings show them."""
        return [note.row() for note in self.notes]


def hash_header(value: str) -> str:
    """The value of a header that is not shown."""
    return "hash:" + sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]


def _word(value: object) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, list):
        return "list"
    return "object" if isinstance(value, dict) else "number"


class SlotDigest:
    """The one representation of slot values: ``redacted:<type>:<12 hex>``, null stays null.

    The digest is keyed (HMAC-SHA256, by tenant and slot), so that equal values of one slot are seen to be equal, and nobody without the key can try
    values out.
    """

    def __init__(self, key: bytes, tenant: str) -> None:
        self._key = hmac.digest(
            key, b"turnledger.slot.v1\0" + tenant.encode("utf-8", "surrogatepass"), sha256
        )

    def __call__(self, slot: str, value: Any) -> Any:
        if value is None or (isinstance(value, str) and _SLOT.fullmatch(value)):
            return value
        said = slot.encode("utf-8", "surrogatepass") + b"\0" + dumps(value)
        return f"redacted:{_word(value)}:{hmac.digest(self._key, said, sha256).hex()[:DIGEST]}"


@dataclass(frozen=True, slots=True)
class Redactor:
    """The rules with their settings. Holds nothing of the records."""

    slot_key: bytes | None = field(default=None, repr=False)
    """Key of the slots' digests. None: slot values are taken as they are, but for secrets by shape: their producer has redacted them."""
    bodies: Mapping[str, bool] | bool = True
    """Whether the data of ``body.recorded`` stays, by stream. Ingest keeps what came; publishers begin with False."""
    body_limit: int | None = None
    """Greatest size of a body in bytes; None: as it came."""

    def suspects(self, values: Sequence[bytes | None]) -> frozenset[int]:
        """Which of these records (values of a fetched batch) may need redaction: indexes, usually none.

        The rest needs none, whatever it is: JSON or not. Some records are looked at together, which costs little more than one; only where there
        is something, fewer are, down to each.
        """
        seen = [(0, len(values))]
        for step in AT_ONCE:
            seen = [
                (at, min(at + step, end))
                for start, end in seen
                for at in range(start, end, step)
                if self._any(values[at : min(at + step, end)])
            ]
        return frozenset(at for at, _ in seen)

    def _any(self, values: Sequence[bytes | None]) -> bool:
        return self._suspicious(plain(b"\n".join([value for value in values if value])))

    def _suspicious(self, text: str) -> bool:
        return suspicious(text) or _FIELDS_SEEN(text) or (self.slot_key is not None and _SLOTS_SEEN(text))

    def redact(self, raw: bytes) -> Redacted | None:
        """A record that the reader accepts, redacted; None where it stays as it is. Redacting the result changes nothing.

        What is no JSON object stays as it is: see ``hide_bytes``.
        """
        found = self._change(raw)
        return None if found is None else Redacted(found[0], content_hash(raw), found[1])

    def outgoing(self, raw: bytes) -> tuple[bytes, int]:
        """(bytes as they may leave, how many redactions), whatever the bytes are: those that are no JSON object are a dead letter, and hold no secret
        by shape either. The same object where nothing is redacted."""
        found = self._change(raw)
        if found is not None:
            return found[0], sum(note.count for note in found[1])
        try:
            if type(orjson.loads(raw)) is dict:
                return raw, 0
        except orjson.JSONDecodeError:
            pass
        counter: Counter[str] = Counter()
        return hide_bytes(raw, counter), counter.total()

    def clean(self, record: dict[str, Any]) -> dict[str, Any]:
        """The same for a record that is no bytes yet: a changed copy with its notes, or the record itself. What orjson takes is taken."""
        written = orjson.dumps(record)
        if not self._suspicious(plain(written)):
            return record
        changed, notes = _Walk(self, orjson.loads(written)).run()
        if not notes:
            return record
        _record(changed, notes)
        return changed

    def clean_all(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """:meth:`clean` of each. They are looked at together, which costs a fifth; only where something is seen, one by one."""
        if not records or not self._suspicious(plain(orjson.dumps(records))):
            return records
        return [self.clean(record) for record in records]

    def _change(self, raw: bytes) -> tuple[bytes, tuple[Note, ...]] | None:
        if not self._suspicious(plain(raw)):
            return None
        try:
            quick = orjson.loads(raw)
        except orjson.JSONDecodeError:
            quick = None  # or it is JSON that only the strict parser takes
        if type(quick) is dict:
            walk = _Walk(self, quick)
            if not walk.run()[1]:
                # As many names as there seem to be: none of them stands twice.
                return None if raw.count(b'":') == walk.names else self._hidden_twin(raw)
        try:
            record = parse(raw)
        except JsonError:
            return None
        if type(record) is not dict:
            return None
        changed, notes = _Walk(self, record).run()
        if not notes:
            return self._hidden_twin(raw)
        _record(changed, notes)
        return dumps(changed), tuple(notes)

    @staticmethod
    def _hidden_twin(raw: bytes) -> tuple[bytes, tuple[Note, ...]] | None:
        """Of duplicate keys the last counts: a secret in another is in the bytes alone, and goes with them."""
        in_bytes: Counter[str] = Counter()
        if hide_bytes(raw, in_bytes) is raw:
            return None
        try:
            again = dumps(record := parse(raw))
        except (JsonError, ValueError):
            return None
        in_content: Counter[str] = Counter()
        hide_bytes(again, in_content)
        lost = in_bytes - in_content
        if not lost or type(record) is not dict:
            return None
        notes = [Note(kind, "(duplicate key)", count) for kind, count in sorted(lost.items())]
        _record(record, notes)
        return dumps(record), tuple(notes)

    def keeps_body(self, stream: str) -> bool:
        return self.bodies if isinstance(self.bodies, bool) else self.bodies.get(stream, False)


def requeued(raw: bytes, received_sha256: bytes) -> Redacted | None:
    """A record of which only the bytes of its dead letter are left, secrets by shape hidden, with notes on the references in them.

    ``received_sha256``: content hash of what came. Whoever put a reference there, it counts. None where hiding left no JSON object.
    """
    try:
        record = parse(raw)
    except JsonError:
        return None
    if type(record) is not dict:
        return None
    kinds = Counter(found[0].split(":")[1] for found in REFERENCE.finditer(raw.decode("latin-1")))
    notes = tuple(Note(kind, "(dead letter)", count) for kind, count in sorted(kinds.items()))
    _record(record, notes)
    return Redacted(dumps(record), received_sha256, notes)


def _record(record: dict[str, Any], notes: Sequence[Note]) -> None:
    """Write the notes into the record's payload, beside those that are there."""
    payload = record.get("payload")
    payload = record["payload"] = dict(payload) if type(payload) is dict else {}
    before = payload.get(NOTE)
    name = NOTE
    if before is not None and not _are_notes(before):
        name = TAKEN_NOTE
        before = payload.get(name)
    counts: Counter[tuple[str, str]] = Counter()
    for row in before if type(before) is list and _are_notes(before) else ():
        counts[row["what"], row["where"]] += row["count"]
    for note in notes:
        counts[note.what, note.where] += note.count
    payload[name] = [Note(what, where, count).row() for (what, where), count in sorted(counts.items())]


def _are_notes(value: Any) -> bool:
    return type(value) is list and all(
        type(row) is dict
        and row.keys() == {"what", "where", "count"}
        and type(row["what"]) is str
        and type(row["where"]) is str
        and type(row["count"]) is int
        for row in value
    )


class _Walk:
    """One record on its way through the rules. What it does not change it does not copy."""

    def __init__(self, rules: Redactor, record: dict[str, Any]) -> None:
        self.rules = rules
        self.record = record
        self.counts: Counter[tuple[str, str]] = Counter()
        self.names = 0
        """Names of fields that were seen."""
        kind = record.get("type")
        self.slots: SlotDigest | None = None
        if rules.slot_key is not None and kind in SLOT_TYPES:
            tenant = record.get("tenant")
            self.slots = SlotDigest(rules.slot_key, tenant if type(tenant) is str else "default")

    def run(self) -> tuple[dict[str, Any], list[Note]]:
        """(the record, or a changed copy of it; what was redacted)."""
        record = self.record
        payload = record.get("payload")
        if type(payload) is dict:
            changed = self._body(payload) if record.get("type") == BODY else payload
            if self.slots is not None:
                changed = self._slots_of(self.slots, changed, "payload")
            if changed is not payload:
                record = {**record, "payload": changed}
        walked = self._object(record, "")
        for name, limit in LIMITS.items():
            value = walked.get(name)
            if value is not record.get(name) and type(value) is str and len(value.encode()) > limit:
                # The reference is longer than what it stands for: all of the text goes into one.
                walked[name] = reference("text", record[name])
        notes = [Note(what, where, count) for (what, where), count in sorted(self.counts.items())]
        if len(notes) > MOST_NOTES:
            rest = sum(note.count for note in notes[MOST_NOTES - 1 :])
            notes = [*notes[: MOST_NOTES - 1], Note("secret", "elsewhere", rest)]
        return walked, notes

    def _note(self, what: str, where: str, count: int = 1) -> None:
        self.counts[what, where[:MOST_PLACE]] += count

    def _value(self, value: Any, where: str) -> Any:
        kind = type(value)
        if kind is str:
            return self._text(value, where)
        if kind is dict:
            return self._object(value, where)
        if kind is list:
            return self._each(value, lambda item: self._value(item, f"{where}[]"))
        return value

    @staticmethod
    def _each(items: list[Any], change: Callable[[Any], Any]) -> list[Any]:
        changed = [change(item) for item in items]
        return changed if any(new is not old for new, old in zip(changed, items, strict=True)) else items

    def _text(self, text: str, where: str) -> str:
        found: Counter[str] = Counter()
        hidden = hide(text, found)
        if hidden is not text:
            for what, count in found.items():
                self._note(what, where, count)
        return hidden

    def _object(self, value: dict[str, Any], where: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        moved = False
        self.names += len(value)
        for name, item in value.items():
            place = f"{where}.{name[:64]}" if where else name[:64]
            shown = name
            if len(name) >= 8 and (shown := hide(name)) is not name:
                place = f"{where}.{shown[:64]}" if where else shown[:64]
                self._text(name, f"{place} (name)")
            new = self._member(name, item, place)
            moved = moved or shown is not name or new is not item
            out[shown] = new
        return out if moved else value

    def _member(self, name: str, item: Any, where: str) -> Any:
        kind = type(item)
        if kind is dict or kind is list or kind is str:
            if _HEADER_FIELD.fullmatch(name):
                item = self._headers(item, where)
            elif (attribute := _HEADER_ATTRIBUTE.fullmatch(name)) is not None:
                item = self._header(attribute[1], item, where)
            elif kind is str and _SECRET_FIELD.fullmatch(name):
                return self._named(item, where)
        return self._value(item, where)

    def _named(self, value: str, where: str) -> str:
        """The value of a field whose name says that it is a secret."""
        found = _SCHEMES.match(value)
        scheme, secret = (found[0][: found.start(2)], found[2]) if found else ("", value)
        if REFERENCE.fullmatch(secret) or _HASHED.fullmatch(secret) or not (found or is_secret_value(secret)):
            return self._text(value, where)
        if secret[0] in "$<{*%":
            return value
        kind = kind_of(secret)
        self._note(kind or "token", where)
        if kind is None and scheme.lower().startswith("basic"):
            return f"{scheme}credential:authorization"
        return scheme + reference(kind or "token", secret) + value[len(scheme) + len(secret) :]

    # --- headers ---

    def _headers(self, value: Any, where: str) -> Any:
        """Headers as an object, as pairs, as objects with a name and a value, as lines, or as the JSON text of one of them."""
        if type(value) is dict:
            changed = {name: self._header(name, item, where) for name, item in value.items()}
            return changed if any(changed[name] is not value[name] for name in value) else value
        if type(value) is list:
            return self._each(value, lambda item: self._header_item(item, where))
        if type(value) is str:
            return self._header_text(value, where)
        return value

    def _header_item(self, item: Any, where: str) -> Any:
        if type(item) is list and len(item) >= 2 and type(item[0]) is str:
            values = self._each(item[1:], lambda value: self._header(item[0], value, where))
            return (
                [item[0], *values] if any(a is not b for a, b in zip(values, item[1:], strict=True)) else item
            )
        if type(item) is dict:
            label = next((key for key in ("name", "key", "header") if type(item.get(key)) is str), None)
            if label is not None and "value" in item:
                new = self._header(item[label], item["value"], where)
                return item if new is item["value"] else {**item, "value": new}
            return self._headers(item, where)
        return self._header_text(item, where) if type(item) is str else item

    def _header(self, name: str, value: Any, where: str) -> Any:
        if value is None or value == "" or name.strip().lower().replace("_", "-") in ALLOWED_HEADERS:
            return value
        if type(value) is list:
            return self._each(value, lambda item: self._header(name, item, where))
        text = value if type(value) is str else dumps(value).decode()
        if _HASHED.fullmatch(text) or REFERENCE.fullmatch(text):
            return value
        self._note("header", where)
        return hash_header(text)

    def _header_text(self, given: str, where: str) -> str:
        text = given
        start = text.lstrip()[:1]
        if start and start in "[{":
            try:
                inner = orjson.loads(text)
            except orjson.JSONDecodeError:
                return text
            changed = self._headers(inner, where)
            return text if changed is inner else dumps(changed).decode()
        if "PRIVATE KEY" in text:
            text = self._text(text, where)  # it has lines of its own
        out: list[str] = []
        hidden = False
        for line in re.split(r"(\r?\n)", text):
            if REFERENCE.fullmatch(line.strip()):
                # It looks like a header called "credential", and stands for a secret that was a line of its own.
                hidden = False
                out.append(line)
                continue
            found = _HEADER_LINE.fullmatch(line)
            if found is not None:
                new = self._header(found[1], found[2], where)
                hidden = new is not found[2]
                line = f"{found[1]}: {new}" if hidden else line
            elif hidden and line.strip():
                out.pop()  # the value goes on: the hash stands for it
                continue
            out.append(line)
        joined = "".join(out)
        return given if joined == given else joined

    # --- slots and bodies ---

    def _slots_of(self, digest: SlotDigest, value: dict[str, Any], where: str) -> dict[str, Any]:
        """``old``, ``new`` and ``value`` of an object that names its ``slot``, and the members of every ``slots``."""
        out = dict(value)
        slot = value.get("slot")
        for name, item in value.items():
            place = f"{where}.{name[:64]}"
            if name in ("old", "new", "value") and type(slot) is str:
                out[name] = self._slot(digest, slot, item, place)
            elif name == "slots" and type(item) is dict:
                out[name] = {one: self._slot(digest, one, held, place) for one, held in item.items()}
            elif type(item) is dict:
                out[name] = self._slots_of(digest, item, place)
            elif type(item) is list:
                out[name] = [
                    self._slots_of(digest, one, f"{place}[]") if type(one) is dict else one for one in item
                ]
        return out

    def _slot(self, digest: SlotDigest, slot: str, value: Any, where: str) -> Any:
        new = digest(slot, value)
        if new is not value:
            self._note("slot", where)
        return new

    def _body(self, payload: dict[str, Any]) -> dict[str, Any]:
        """A body's data: out where bodies are off, cut where it is too long, and without secrets where it is text."""
        data = payload.get("data")
        if type(data) is not str or not data:
            return payload
        stream = self.record.get("stream")
        if not self.rules.keeps_body(stream if type(stream) is str else "ledger"):
            self._note("body", "payload.data")
            return {**payload, "data": None, "truncated": True}
        try:
            body = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return payload
        limit = self.rules.body_limit
        found: Counter[str] = Counter()
        hidden = hide_bytes(body, found)
        if hidden is not body:
            for what, count in found.items():
                self._note(what, "payload.data", count)
        cut = hidden if limit is None else hidden[:limit]
        if len(cut) < len(hidden):
            self._note("body_cut", "payload.data")
            return {**payload, "data": base64.b64encode(cut).decode(), "truncated": True}
        return payload if hidden is body else {**payload, "data": base64.b64encode(hidden).decode()}
