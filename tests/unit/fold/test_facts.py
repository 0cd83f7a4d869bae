"""Facts of a session (contract 12)."""

from __future__ import annotations

import pytest

from tests.unit.fold.events import START, Story
from turnledger.fold.columns import FACTS
from turnledger.fold.model import Row


def facts(story: Story) -> Row:
    return story.fold().facts


def test_the_row_has_exactly_the_promised_columns() -> None:
    story = Story()
    story("net.requested")
    assert list(facts(story)) == [name for name, _ in FACTS]


def test_a_session_is_running_unless_its_last_session_event_ends_it() -> None:
    story = Story()
    story("session.started")
    assert (facts(story)["status"], facts(story)["stopped_at"]) == ("running", None)
    story("session.ended", status="crashed")
    assert (facts(story)["status"], facts(story)["stopped_at"]) == ("crashed", START + 1_000_000)
    story("net.requested")
    assert facts(story)["status"] == "crashed"
    story("session.resumed")
    assert (facts(story)["status"], facts(story)["stopped_at"]) == ("running", None)


def test_what_a_session_is_called_is_what_was_said_last() -> None:
    story = Story()
    story("session.started", agent="a", name="first", mode="plan", model="m1")
    story("session.resumed", name="second", model="m0")
    story("model_call.completed", turn="t", provider="p", model="m2")
    row = facts(story)
    assert (row["agent"], row["name"], row["mode"]) == ("a", "second", "plan")
    assert row["models"] == ["m0", "m1", "m2"]


def test_it_was_created_at_its_first_start_else_at_the_least_time() -> None:
    story = Story()
    story("net.requested", second=3, stream="b")
    story("net.requested", second=9, stream="b")
    assert (facts(story)["created_at"], facts(story)["last_activity_at"]) == (
        START + 3_000_000,
        START + 9_000_000,
    )
    story("session.started", second=5)
    assert facts(story)["created_at"] == START + 5_000_000


@pytest.mark.parametrize(
    ("kinds", "kind"),
    [
        (["eval", "eval"], "eval"),
        (["eval", "import"], "import"),
        (["import"], "import"),
        (["eval", "live"], "live"),
        (["import", "live"], "live"),
    ],
)
def test_its_kind_is_eval_when_all_is_and_import_when_nothing_is_live(kinds: list[str], kind: str) -> None:
    story = Story()
    for one in kinds:
        story("net.requested", kind=one, run_id="r")
    assert facts(story)["kind"] == kind


def test_counts_are_what_contract_12_counts() -> None:
    story = Story()
    for decision in ("allowed", "denied", "error", "redirected"):
        story("net.requested", decision=decision, domain="d")
    for action in ("created", "overflow", "read"):
        story("fs.changed", action=action, path="/")
    story("process.started", exec_id="1", command="c")
    story("process.exited", exec_id="1", exit_code=0)
    story("process.audited", pid=1)
    for outcome in ("passed", "blocked", "coerced", "coerced"):
        story("guard.evaluated", guard="g", outcome=outcome)
    story("message.recorded", role="user", text="hi")
    story("message.recorded", role="user", text="copied", provenance="inherited")
    row = facts(story)
    assert {name: row[name] for name, kind in FACTS if kind == "int8" and name != "fork_at_seq"} == {
        "message_count": 1,
        "total_requests": 4,
        "allowed_requests": 1,
        "denied_requests": 1,
        "error_requests": 1,
        "total_file_events": 2,
        "exec_count": 1,
        "audit_event_count": 1,
        "guard_blocks": 1,
        "guard_coercions": 2,
        "event_count": 16,
    }


def test_a_mixed_sessions_counts_leave_eval_work_out() -> None:
    story = Story()
    story("net.requested", kind="eval", run_id="r", decision="allowed")
    story("net.requested", decision="allowed")
    assert facts(story)["total_requests"] == 1


def test_a_fork_names_its_parent_and_where_it_was_cut() -> None:
    story = Story()
    story("session.forked", parent_session_id="p", at_seq=17, payload={"stream": "bus"})
    row = facts(story)
    assert (row["fork_parent_session_id"], row["fork_stream"], row["fork_at_seq"]) == ("p", "bus", 17)


def test_unknown_types_and_newer_versions_are_counted() -> None:
    story = Story()
    for _ in range(3):
        story("someone.else").schema_version = 9
    found = {one["check"]: (one["count"], one["row"]) for one in story.fold().findings}
    assert found == {
        "unknown_event_type": (3, {"type": "someone.else"}),
        "newer_schema_version": (3, {"schema_version": 9}),
    }
