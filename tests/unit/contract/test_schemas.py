"""The generated schemas: fresh, additive alone, and saying what the models say."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from turnledger.contract import schemas
from turnledger.contract.additive import breaking
from turnledger.contract.types import EVENT_TYPES

ROOT = Path(__file__).parents[3]
ENVELOPE = "envelope.schema.json"
USAGE = "events/usage.reported.schema.json"
TURN = "turn-record.schema.json"


@cache
def generated() -> Mapping[str, str]:
    return MappingProxyType(schemas.generate())


def test_the_committed_schemas_are_fresh() -> None:
    assert schemas.stale(ROOT / "schemas") == []


def test_generating_twice_gives_the_same_bytes() -> None:
    assert schemas.generate() == generated()


def test_every_event_type_has_its_schema_and_its_place_in_the_catalogue() -> None:
    files = generated()
    for name in EVENT_TYPES:
        assert f"events/{name}.schema.json" in files
        assert f"\n### `{name}`\n" in files["catalogue.md"]


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_every_event_may_say_what_was_redacted_in_it(
    name: str, validator: Callable[[str], Draft202012Validator]
) -> None:
    payload = payload_of(json.loads(generated()[f"events/{name}.schema.json"]))
    assert list(payload["properties"])[-1] == "redactions"
    assert "redactions" not in payload.get("required", ())
    # Whatever a producer keeps under that name is taken.
    checked = validator(f"events/{name}.schema.json").evolve(schema=payload)
    assert [error.path[0] for error in checked.iter_errors({"redactions": "mine"}) if error.path] == []


def test_ids_name_no_host() -> None:
    for name, text in generated().items():
        if name.endswith(".json"):
            assert json.loads(text)["$id"].startswith("urn:turnledger:")


@pytest.fixture(scope="module")
def validator() -> Callable[[str], Draft202012Validator]:
    files = {name: json.loads(text) for name, text in generated().items() if name.endswith(".schema.json")}
    for schema in files.values():
        Draft202012Validator.check_schema(schema)
    registry: Registry[Any] = Registry().with_resources(
        (schema["$id"], Resource.from_contents(schema)) for schema in files.values()
    )
    return lambda name: Draft202012Validator(files[name], registry=registry)


GOOD = {"session_id": "s", "seq": 1, "type": "usage.reported", "payload": {"usage": {"input": 5}}}


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"tenant": None, "turn_id": None, "payload": {"usage": None}}, True),
        ({"unknown": 1, "payload": {"unknown": 1}}, True),
        ({"seq": 1.0}, True),
        ({"seq": None, "receipt_key": "r"}, True),
        ({"kind": "eval", "run_id": "r"}, True),
        ({"origin": {"pid": 5, "host": "h"}}, True),
        ({"seq": None}, False),
        ({"seq": None, "receipt_key": ""}, False),
        ({"seq": -1}, False),
        ({"seq": "1"}, False),
        ({"seq": True}, False),
        ({"session_id": ""}, False),
        ({"session_id": "x" * 257}, False),
        ({"kind": "eval"}, False),
        ({"kind": "test"}, False),
        ({"origin": {"a": []}}, False),
        ({"type": "turn.started"}, False),
        ({"payload": {"usage": {"input": -5}}}, False),
        ({"payload": {"source": "guess"}}, False),
    ],
)
def test_the_schema_of_an_event_takes_what_the_contract_takes(
    validator: Callable[[str], Draft202012Validator], change: dict[str, Any], valid: bool
) -> None:
    assert validator(USAGE).is_valid(GOOD | change) is valid


def test_the_schema_of_an_event_asks_for_the_fields_of_its_payload(
    validator: Callable[[str], Draft202012Validator],
) -> None:
    check = validator("events/session.forked.schema.json")
    forked = {"session_id": "s", "seq": 1, "type": "session.forked"}
    assert check.is_valid(forked | {"payload": {"parent_session_id": "p"}})
    assert not check.is_valid(forked | {"payload": {}})
    assert not check.is_valid(forked)


def test_the_schema_of_the_turn_record_takes_one(validator: Callable[[str], Draft202012Validator]) -> None:
    record = {
        "schema_version": 2,
        "tenant": "default",
        "session_id": "s",
        "turn_key": "t",
        "kind": "live",
        "revision": 1,
        "status": "completed",
        "assigned_by": "id",
        "stop": {"why": "answered"},
        "model_calls": [{"model_call_id": "m", "usage": {"total_input": 5, "output": None}}],
        "seq_spans": [{"producer": "harness", "epoch": 0, "stream": "ledger", "from": 0, "to": 9}],
        "grade": "complete",
    }
    assert validator(TURN).is_valid(record)
    assert not validator(TURN).is_valid(record | {"grade": "fine"})
    assert not validator(TURN).is_valid(record | {"schema_version": 1})


# --- additive alone ---


def changed(name: str, change: Callable[[dict[str, Any]], None]) -> tuple[dict[str, str], dict[str, str]]:
    """The schemas before a change, and after it."""
    before = dict(generated())
    schema = json.loads(before[name])
    change(schema)
    return before, before | {name: json.dumps(schema)}


def payload_of(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["properties"]["payload"]
    return found


def test_nothing_changed_breaks_nothing() -> None:
    assert breaking(generated(), generated()) == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (USAGE, lambda s: payload_of(s)["properties"].update(new={"type": "string"})),
        (USAGE, lambda s: payload_of(s)["properties"]["source"]["anyOf"][0]["enum"].append("guess")),
        (USAGE, lambda s: payload_of(s)["properties"]["model"].update(description="other words")),
        (USAGE, lambda s: payload_of(s)["properties"]["model"]["anyOf"].append({"type": "integer"})),
        (USAGE, lambda s: payload_of(s)["properties"].update(model={"description": "anything"})),
        (USAGE, lambda s: s["$defs"]["Usage"]["properties"]["input"]["anyOf"][0].update(type="number")),
        (USAGE, lambda s: s["$defs"]["Usage"]["properties"].update(new={"type": "integer"})),
        (ENVELOPE, lambda s: s["properties"]["tenant"]["anyOf"][0].update(maxLength=256)),
        (ENVELOPE, lambda s: s["required"].remove("type")),
        (ENVELOPE, lambda s: s.pop("if")),
        (TURN, lambda s: s["properties"]["grade"]["enum"].append("new")),
        (TURN, lambda s: s["$defs"]["ToolCall"]["properties"].update(new={})),
    ],
)
def test_an_addition_breaks_nothing(name: str, change: Callable[[dict[str, Any]], None]) -> None:
    assert breaking(*changed(name, change)) == []


@pytest.mark.parametrize(
    ("name", "change", "what"),
    [
        (USAGE, lambda s: payload_of(s)["properties"].pop("model"), "payload.model is gone"),
        (USAGE, lambda s: payload_of(s).update(required=["model"]), "payload.model is newly required"),
        (USAGE, lambda s: s.update(required=["payload"]), "payload is newly required"),
        (USAGE, lambda s: payload_of(s)["properties"]["source"]["anyOf"][0]["enum"].remove("estimate"), "payload.source takes less than before"),
        (USAGE, lambda s: payload_of(s)["properties"]["model"]["anyOf"].pop(1), "payload.model takes less than before"),
        (USAGE, lambda s: payload_of(s)["properties"].update(model={"type": "integer"}), "payload.model takes less than before"),
        (USAGE, lambda s: payload_of(s)["properties"]["model"]["anyOf"][0].update(enum=["a"]), "payload.model takes less than before"),
        (USAGE, lambda s: payload_of(s)["properties"].update(reported_cost_usd={"type": "integer"}), "payload.reported_cost_usd takes less than before"),
        (USAGE, lambda s: payload_of(s)["properties"]["usage"]["anyOf"].pop(0), "payload.usage takes less than before"),
        (USAGE, lambda s: s["$defs"]["Usage"]["properties"].pop("input"), "payload.usage.input is gone"),
        (USAGE, lambda s: s["$defs"]["Usage"]["properties"]["input"]["anyOf"][0].update(minimum=1), "payload.usage.input takes less than before"),
        (ENVELOPE, lambda s: s["properties"]["tenant"]["anyOf"][0].update(maxLength=64), "tenant takes less than before"),
        (ENVELOPE, lambda s: s["properties"]["run_id"]["anyOf"][0].update(minLength=1), "run_id takes less than before"),
        (ENVELOPE, lambda s: s["properties"]["run_id"]["anyOf"][0].update(pattern="^x"), "run_id takes less than before"),
        (ENVELOPE, lambda s: s["required"].append("tenant"), "tenant is newly required"),
        (ENVELOPE, lambda s: s["properties"]["origin"]["anyOf"][0].update(additionalProperties=False), "origin takes no unknown fields any more"),
        (ENVELOPE, lambda s: s["properties"]["origin"]["anyOf"][0].update(additionalProperties={"type": "string"}), "origin.* takes less than before"),
        (ENVELOPE, lambda s: s.update(additionalProperties=False), "the document takes no unknown fields any more"),
        (ENVELOPE, lambda s: s["anyOf"].pop(), "the rule `anyOf` is new or changed"),
        (ENVELOPE, lambda s: s["then"].update(required=["run_id", "turn_id"]), "the rule `then` is new or changed"),
        (TURN, lambda s: s["$defs"]["ModelCall"]["properties"].pop("retries"), "model_calls[].retries is gone"),
        (TURN, lambda s: s["properties"]["limits"]["anyOf"][0].update(items={"type": "string"}), "limits[] takes less than before"),
    ],
)  # fmt: skip
def test_what_takes_something_back_is_told(
    name: str, change: Callable[[dict[str, Any]], None], what: str
) -> None:
    assert f"{name}: {what}" in breaking(*changed(name, change))


def test_a_type_that_is_gone_is_told() -> None:
    before = dict(generated())
    after = {name: text for name, text in before.items() if name != USAGE}
    assert breaking(before, after) == [f"{USAGE} is gone"]


def test_a_topic_that_is_gone_is_told() -> None:
    before = dict(generated())
    topics = json.loads(before["topics.json"])
    topics["topics"] = [topic for topic in topics["topics"] if topic["name"] != "turnledger.live"]
    assert breaking(before, before | {"topics.json": json.dumps(topics)}) == ["topic turnledger.live is gone"]


# --- the command ---


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of its own with the schemas committed."""
    schemas.write(tmp_path)
    for command in (
        ["init", "-q"],
        ["add", "schemas"],
        ["-c", "user.name=test", "-c", "user.email=test@example.invalid", "commit", "-q", "-m", "schemas"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def run(tree: Path, *arguments: str) -> int:
    return schemas.main(["--root", str(tree), *arguments])


def test_check_passes_where_all_is_fresh(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree, "--check") == 0
    assert capsys.readouterr().out == "schemas/ is fresh and adds to HEAD alone.\n"


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        (lambda folder: (folder / ENVELOPE).write_text("{}"), ENVELOPE),
        (lambda folder: (folder / USAGE).unlink(), USAGE),
        (
            lambda folder: (folder / "events" / "old.type.schema.json").write_text("{}"),
            "events/old.type.schema.json",
        ),
    ],
)
def test_check_names_what_is_stale_and_the_way_out(
    tree: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], Any], file: str
) -> None:
    damage(tree / "schemas")
    assert run(tree, "--check") == 2
    assert capsys.readouterr().err == (
        f"schemas/ is not what the models say ({file}): run `python -m turnledger.contract.schemas` and commit it.\n"
    )
    assert run(tree) == 0
    assert run(tree, "--check") == 0


def test_check_fails_where_a_committed_field_was_taken_back(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, after = changed(USAGE, lambda s: payload_of(s)["properties"].pop("model"))
    monkeypatch.setattr(schemas, "generate", lambda: after)
    assert run(tree) == 0
    assert run(tree, "--check") == 2
    assert f"takes back what HEAD gave ({USAGE}: payload.model is gone)" in capsys.readouterr().err


def test_check_says_aloud_what_it_could_not_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    assert run(tmp_path, "--check", "--base", "no-such-revision") == 0
    assert (
        "whether it only adds was not checked, since git has no no-such-revision here"
        in capsys.readouterr().out
    )
