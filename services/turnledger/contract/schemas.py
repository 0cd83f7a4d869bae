"""The generated ``schemas/`` folder: JSON Schemas, topic catalogue, event catalogue; its freshness and additive-only rule.

``python -m turnledger.contract.schemas`` writes it, ``--check`` says whether it is stale or takes something back that was given.
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from turnledger.contract.additive import breaking
from turnledger.contract.envelope import Envelope
from turnledger.contract.topics import TOPICS
from turnledger.contract.turn_record import TurnRecord
from turnledger.contract.types import EVENT_TYPES
from turnledger.contract.version import ENVELOPE_VERSION, TURN_RECORD_VERSION
from turnledger.errors import TurnledgerError

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FOLDER = "schemas"


class StaleSchemas(TurnledgerError):
    """The folder is not what the models say."""


class BreakingSchemas(TurnledgerError):
    """The models take back what an earlier version gave."""


# --- generating ---


def _clean(node: Any) -> Any:
    """Without pydantic's titles and null defaults, docstrings on one line: less to differ over pydantic's versions."""
    if isinstance(node, list):
        return [_clean(item) for item in node]
    if not isinstance(node, dict):
        return node
    out: Schema = {}
    for key, value in node.items():
        if key == "properties" or key == "$defs":
            out[key] = {name: _clean(item) for name, item in value.items()}
        elif key == "title" or (key == "default" and value is None):
            continue
        elif key == "description":
            out[key] = " ".join(value.split()).replace("``", "`")
        else:
            out[key] = _clean(value)
    return out


def _nullable(schema: Schema) -> Schema:
    if "anyOf" in schema and {"type": "null"} in schema["anyOf"]:
        return schema
    about: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    rest = {key: value for key, value in schema.items() if key not in about}
    return {"anyOf": [rest, {"type": "null"}], **about} if rest else about


def _schema(model: type[BaseModel], urn: str, title: str) -> Schema:
    generated = _clean(model.model_json_schema(by_alias=True, mode="validation"))
    required = set(generated.get("required", ()))
    for name, field in generated.get("properties", {}).items():
        if name not in required:  # null means absent, everywhere
            generated["properties"][name] = _nullable(field)
    return {"$schema": DIALECT, "$id": urn, "title": title, **generated}


def envelope_schema() -> Schema:
    """The envelope of contract 2. Lengths in bytes cannot be said in JSON Schema: ``maxLength`` is their upper bound in characters."""
    schema = _schema(Envelope, "urn:turnledger:schema:envelope", "Envelope")
    schema["x-turnledger-version"] = ENVELOPE_VERSION
    schema["anyOf"] = [
        {"required": ["seq"], "properties": {"seq": {"type": "integer"}}},
        {"required": ["receipt_key"], "properties": {"receipt_key": {"type": "string", "minLength": 1}}},
    ]
    schema["if"] = {"required": ["kind"], "properties": {"kind": {"const": "eval"}}}
    schema["then"] = {"required": ["run_id"], "properties": {"run_id": {"type": "string", "minLength": 1}}}
    return schema


def event_schema(type_name: str) -> Schema:
    """One event type: the envelope with its payload."""
    payload = _schema(EVENT_TYPES[type_name], "", "")
    definitions = payload.pop("$defs", None)
    for key in ("$schema", "$id", "title"):
        del payload[key]
    # Of every type alike: behind what is the type's own.
    payload["properties"]["redactions"] = payload["properties"].pop("redactions")
    schema: Schema = {
        "$schema": DIALECT,
        "$id": f"urn:turnledger:schema:event:{type_name}",
        "title": type_name,
        "description": payload.pop("description"),
        "allOf": [{"$ref": "urn:turnledger:schema:envelope"}],
        "type": "object",
        "properties": {"type": {"const": type_name}, "payload": payload},
        "required": ["payload"] if payload.get("required") else [],
    }
    if definitions:
        schema["$defs"] = definitions
    return schema


def turn_record_schema() -> Schema:
    """The turn record of contract 10."""
    schema = _schema(TurnRecord, "urn:turnledger:schema:turn-record", "Turn record")
    schema["x-turnledger-version"] = TURN_RECORD_VERSION
    return schema


def topic_catalogue() -> Schema:
    """The topics, their settings and advice."""
    return {
        "$id": "urn:turnledger:topics",
        "topics": [asdict(topic) for topic in TOPICS],
    }


def _type_words(schema: Schema) -> str:
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " ".join(f"`{word}`" for word in schema["enum"])
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1].lower()
    if "anyOf" in schema:
        return " or ".join(_type_words(part) for part in schema["anyOf"] if part != {"type": "null"})
    kind: Any = schema.get("type", "any")
    words = {"string": "text", "object": "object", "array": "array", "boolean": "bool", "integer": "int"}
    if isinstance(kind, list):
        return " or ".join(words.get(part, str(part)) for part in kind if part != "null")
    if kind == "integer" and schema.get("minimum") == 0:
        return "int ≥ 0"
    return words.get(kind, str(kind))


def _rows(schema: Schema) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        optional = name not in required
        about = field.get("description", "").replace("|", "\\|")
        yield f"| `{name}`{'?' if optional else ''} | {_type_words(field)} | {about} |"


def _table(schema: Schema) -> list[str]:
    return ["| field | type | what it says |", "|---|---|---|", *_rows(schema)]


def event_catalogue() -> str:
    """The page for people: envelope, every event type, topics, in Markdown."""
    lines = [
        "# Event catalogue",
        "",
        "Generated by `python -m turnledger.contract.schemas`; edit the models, not this page.",
        "`?` marks an optional field; null means absent everywhere. Times are ms, sizes bytes, unless a field says otherwise.",
        "A field of a wrong type reads as null and is a finding; unknown fields and unknown types are kept.",
        "",
        "## Envelope",
        "",
        _doc(Envelope),
        "",
        *_table(envelope_schema()),
    ]
    definitions: dict[str, Schema] = {}
    family = ""
    for name in EVENT_TYPES:
        if name.split(".")[0] != family:
            family = name.split(".")[0]
            lines += ["", f"## {family}"]
        schema = event_schema(name)
        definitions |= schema.get("$defs", {})
        lines += ["", f"### `{name}`", "", schema["description"]]
        if schema["properties"]["payload"].get("properties"):
            lines += ["", *_table(schema["properties"]["payload"])]
    for name, schema in sorted(definitions.items()):
        lines += ["", f"## Object {name.lower()}", "", schema.get("description", ""), "", *_table(schema)]
    lines += ["", "## Topics"]
    for topic in TOPICS:
        lines += [
            "",
            f"### `{topic.name}`",
            "",
            topic.about,
            "",
            f"Key `{topic.key}`, value `{topic.value}`, cleanup `{topic.cleanup_policy}`, retention {_retention(topic.retention_ms)}, "
            f"{topic.partitions} partitions. {topic.advice}",
        ]
    return "\n".join(lines) + "\n"


def _retention(ms: int) -> str:
    if ms < 0:
        return "unlimited"
    return f"{ms // 86_400_000} days" if ms >= 86_400_000 else f"{ms // 3_600_000} h"


def _doc(model: type[BaseModel]) -> str:
    return " ".join((inspect.getdoc(model) or "").split()).replace("``", "`")


def _json(value: Schema) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def generate() -> dict[str, str]:
    """Every file of the folder: path below it → content. The same on every machine."""
    files = {
        "envelope.schema.json": _json(envelope_schema()),
        "turn-record.schema.json": _json(turn_record_schema()),
        "topics.json": _json(topic_catalogue()),
        "catalogue.md": event_catalogue(),
    }
    for name in EVENT_TYPES:
        files[f"events/{name}.schema.json"] = _json(event_schema(name))
    return files


# --- checking ---


def stale(folder: Path) -> list[str]:
    """Which files of the folder are not what the models say: changed, missing or left over."""
    expected = generate()
    found = {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in (".json", ".md")
    }
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode("utf-8")


def committed(root: Path, base: str) -> dict[str, str] | None:
    """The folder as a git revision has it: path → content, empty where it has none; None without git or the revision."""
    listing = _git(root, "ls-tree", "-r", "--name-only", base, "--", FOLDER)
    if listing is None:
        return None
    files: dict[str, str] = {}
    for path in listing.splitlines():
        content = _git(root, "show", f"{base}:./{path}")
        if content is not None:
            files[path.removeprefix(FOLDER + "/")] = content
    return files


def write(root: Path) -> list[str]:
    """Write the folder below ``root``; the files that changed or went."""
    folder = root / FOLDER
    changed = stale(folder)
    files = generate()
    for name in changed:
        path = folder / name
        if name in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[name], "utf-8")
        else:
            path.unlink()
    return changed


def check(root: Path, base: str) -> str:
    """A sentence that all is well. Raises ``StaleSchemas`` or ``BreakingSchemas`` where it is not."""
    differing = stale(root / FOLDER)
    if differing:
        raise StaleSchemas(
            f"{FOLDER}/ is not what the models say ({_some(differing)}): run `python -m turnledger.contract.schemas` and commit it."
        )
    before = committed(root, base)
    if before is None:
        return f"{FOLDER}/ is fresh; whether it only adds was not checked, since git has no {base} here."
    found = breaking(before, generate())
    if found:
        raise BreakingSchemas(
            f"{FOLDER}/ takes back what {base} gave ({_some(found)}): schemas change by addition only; "
            "keep the field, or give the new meaning a new name."
        )
    return f"{FOLDER}/ is fresh and adds to {base} alone."


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m turnledger.contract.schemas", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when stale or not additive")
    parser.add_argument("--base", default="HEAD", help="git revision that must only be added to (HEAD)")
    parser.add_argument(
        "--root", type=Path, default=Path.cwd(), help="where schemas/ is (the current directory)"
    )
    options = parser.parse_args(arguments)
    try:
        if options.check:
            print(check(options.root, options.base))
        else:
            changed = write(options.root)
            print(f"{FOLDER}/: {len(changed)} files written." if changed else f"{FOLDER}/ was fresh.")
    except TurnledgerError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
