"""The additive-only rule: what a new set of schemas takes back of an old one (contract 17: the surface changes by addition only)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Schema = dict[str, Any]

_RULES = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not")


def breaking(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What new schemas take back of old ones, a phrase each; both map path → content.

    A type or field that is gone, a word that is no longer listed, what is newly required, a type or bound that is narrower, a rule
    over several fields that is new or changed, a topic that is gone. Descriptions may change.
    """
    found: list[str] = []
    for name in sorted(old):
        if not name.endswith(".schema.json"):
            continue
        if name not in new:
            found.append(f"{name} is gone")
            continue
        before, after = json.loads(old[name]), json.loads(new[name])
        found += [f"{name}: {what}" for what in dict.fromkeys(_Comparison(before, after).run())]
    gone = _topics(old) - _topics(new)
    return found + [f"topic {name} is gone" for name in sorted(gone)]


def _topics(files: Mapping[str, str]) -> set[str]:
    if "topics.json" not in files:
        return set()
    return {topic["name"] for topic in json.loads(files["topics.json"])["topics"]}


class _Comparison:
    """Two versions of one schema document, walked together."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self.old = old
        self.new = new

    def run(self) -> Iterator[str]:
        yield from self._object(self.old, self.new, "")
        for key in _RULES:  # rules over several fields may go, not come or change
            if key in self.new and self.new[key] != self.old.get(key):
                yield f"the rule `{key}` is new or changed"

    def _value(self, old: Any, new: Any, place: str) -> Iterator[str]:
        branches = list(_branches(new, self.new))
        for before in _branches(old, self.old):
            after = next((branch for branch in branches if _takes(branch, before)), None)
            if after is None:
                yield f"{place} takes less than before"
            elif after:
                yield from self._object(before, after, place)
                if "items" in after:
                    yield from self._value(before.get("items", {}), after["items"], f"{place}[]")

    def _object(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        prefix = f"{place}." if place else ""
        for name, before in old.get("properties", {}).items():
            if name in new.get("properties", {}):
                yield from self._value(before, new["properties"][name], prefix + name)
            else:
                yield f"{prefix}{name} is gone"
        for name in new.get("required", ()):
            if name not in old.get("required", ()):
                yield f"{prefix}{name} is newly required"
        others = new.get("additionalProperties", True)
        before = old.get("additionalProperties", True)
        if others is False and before is not False:
            yield f"{place or 'the document'} takes no unknown fields any more"
        elif isinstance(others, dict):
            yield from self._value(before if isinstance(before, dict) else {}, others, f"{prefix}*")


def _branches(schema: Any, root: Schema) -> Iterator[Schema]:
    """The alternatives of a field's schema, each of one type; ``{}`` for one that takes anything."""
    if "$ref" in schema:
        yield from _branches(root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)
    elif "anyOf" in schema:
        for part in schema["anyOf"]:
            yield from _branches(part, root)
    elif isinstance(schema.get("type"), list):
        for kind in schema["type"]:
            yield {**schema, "type": kind}
    else:
        yield {key: value for key, value in schema.items() if key not in ("description", "default")}


def _takes(new: Schema, old: Schema) -> bool:
    """Whether every value that the old alternative took is of the new one's type, words and bounds."""
    if not new:
        return True
    kinds = ("integer", "number") if old.get("type") == "integer" else (old.get("type"),)
    if "type" in new and new["type"] not in kinds:
        return False
    words = _words(new)
    if words is not None:
        before = _words(old)
        if before is None or not before <= words:
            return False
    return (
        all(old.get(key, float("-inf")) >= new[key] for key in ("minimum", "minLength") if key in new)
        and all(old.get(key, float("inf")) <= new[key] for key in ("maximum", "maxLength") if key in new)
        and all(old.get(key) == new[key] for key in ("format", "pattern") if key in new)
    )


def _words(schema: Schema) -> set[Any] | None:
    if "const" in schema:
        return {schema["const"]}
    return set(schema["enum"]) if "enum" in schema else None
