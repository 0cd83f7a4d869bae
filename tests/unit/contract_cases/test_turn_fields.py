"""Contract 10: every field of the turn record; the slot and guard cases of the session facts."""

from __future__ import annotations

from typing import Any

from tests.unit.contract_cases.envelopes import Case, Envelope, done, ev, found, table, turn

WHY = "turns/0/stop/why"
T = "turns/0"


def slots(
    when: str, values: dict[str, Any], required: list[str] | None = None, state: str = "s1", **given: Any
) -> Envelope:
    more = {} if required is None else {"required": required}
    return ev("state.observed", state=state, slots=values, when=when, **more, **given)


def wrote(slot: str, old: Any, new: Any) -> Envelope:
    return ev("slot.written", slot=slot, old=old, new=new)


def limit(name: str = "iterations") -> Envelope:
    return ev("limit.reached", limit=name, value=3, threshold=3)


def names(*found: str) -> list[str]:
    return list(found)


ASK = ev("tool_call.requested", tool="x", tool_name="bash")
ANSWER = ev("answer.finalized", text="42", exact=True)
TEXT = done({"output": 1}, text="hello")


@table(
    Case(
        "a failed turn stopped for it, whatever else",
        turn("t", ANSWER, limit(), end="failed"),
        {WHY: "failed", f"{T}/status": "failed"},
    ),
    Case("an interrupted one", turn("t", ANSWER, end="interrupted"), {WHY: "interrupted"}),
    Case(
        "an aborted one was interrupted",
        turn("t", ANSWER, end="aborted"),
        {WHY: "interrupted", f"{T}/status": "aborted"},
    ),
    Case("a limit after the last call", turn("t", TEXT, limit(), ANSWER), {WHY: "limit"}),
    Case("a limit before the last call stopped nothing", turn("t", limit(), TEXT, ANSWER), {WHY: "answered"}),
    Case("a limit without any call", turn("t", limit()), {WHY: "limit"}),
    Case("a tool call without result, before an answer", turn("t", ASK, ANSWER), {WHY: "tool_pending"}),
    Case("a pending tool call of an open turn", turn("t", ASK, end=None), {WHY: "tool_pending"}),
    Case("answered", turn("t", TEXT, ANSWER), {WHY: "answered"}),
    Case("text without a tool call", turn("t", TEXT), {WHY: "text_without_tool_call"}),
    Case("nothing known", turn("t"), {WHY: "unknown"}),
    Case(
        "an unlisted status is completed",
        turn("t", ANSWER, end="great"),
        {f"{T}/status": "completed", WHY: "answered"},
    ),
    Case(
        "the last end in order decides",
        [*turn("t"), ev("turn.completed", turn="t", status="failed")],
        {f"{T}/status": "failed"},
    ),
    Case(
        "the duration reported stands",
        [ev("turn.started", turn="t"), ev("turn.completed", turn="t", status="completed", duration_ms=5)],
        {f"{T}/duration_ms": 5, f"{T}/duration_source": "reported"},
    ),
    Case(
        "else it is derived from both times",
        turn("t"),
        {
            f"{T}/duration_ms": 1000,
            f"{T}/duration_source": "derived",
            f"{T}/started_at": "2026-05-04T10:00:00.000000Z",
        },
    ),
    Case(
        "without both there is none",
        turn("t", end=None),
        {f"{T}/duration_ms": None, f"{T}/duration_source": None, f"{T}/completed_at": None},
    ),
    Case(
        "the user's input is the start's preview",
        [ev("turn.started", turn="t", input_preview="hi")],
        {f"{T}/user_input": "hi"},
    ),
    Case(
        "else the user's first message",
        turn(
            "t",
            ev("message.recorded", role="system", text="be kind"),
            ev("message.recorded", role="user", text="hi"),
            ev("message.recorded", role="user", text="again"),
        ),
        {f"{T}/user_input": "hi"},
    ),
    Case(
        "the answer's text and exactness", turn("t", ANSWER), {f"{T}/answer": {"text": "42", "exact": True}}
    ),
    Case(
        "an answer's value",
        turn("t", ev("answer.finalized", value={"a": [1, None]}, exact=False)),
        {f"{T}/answer": {"value": {"a": [1, None]}, "exact": False}},
    ),
    Case(
        "the last answer in order",
        turn("t", ev("answer.finalized", text="a", exact=False), ANSWER),
        {f"{T}/answer/text": "42"},
    ),
    Case(
        "limits in order",
        turn("t", limit("rate"), limit("cost")),
        {
            f"{T}/limits/*/limit": names("rate", "cost"),
            f"{T}/limits/0/value": 3,
            f"{T}/limits/0/threshold": 3,
        },
    ),
    Case(
        "compactions",
        turn(
            "t",
            ev("context.compaction_started", trigger="auto"),
            ev("context.compacted", tokens_before=100, tokens_after=10, strategy="summary"),
        ),
        {f"{T}/compactions": [{"tokens_before": 100, "tokens_after": 10, "strategy": "summary"}]},
    ),
    Case(
        "the context's use in millionths",
        turn(
            "t",
            ev("model_call.started", call="1", provider="anthropic", context_tokens=50, context_window=200),
        ),
        {f"{T}/context": {"tokens": 50, "window": 200, "used_ppm": 250000}},
    ),
    Case(
        "without both there is no share",
        turn("t", ev("model_call.started", call="1", provider="anthropic", context_tokens=50)),
        {f"{T}/context": {"tokens": 50}},
    ),
    Case(
        "C21: 30 guards and 30 candidates are 24 each, flagged",
        turn(
            "t",
            *(ev("guard.evaluated", guard=f"g{i}", outcome="passed") for i in range(30)),
            ev("transition.decided", state="s1", verdict="go", candidates=[f"c{i}" for i in range(30)]),
        ),
        {
            f"{T}/guards_evaluated/*/guard": [f"g{i}" for i in range(24)],
            f"{T}/verdict/candidates": [f"c{i}" for i in range(24)],
            f"{T}/truncated": {"guards": True, "candidates": True},
            f"{T}/counts/events": 33,
        },
    ),
    Case(
        "24 are not cut",
        turn(
            "t",
            *(ev("guard.evaluated", guard=f"g{i}", outcome="passed") for i in range(24)),
            ev("transition.decided", state="s1", verdict="go", candidates=["c"] * 24),
        ),
        {f"{T}/truncated/guards": False, f"{T}/truncated/candidates": False},
    ),
    Case(
        "the last verdict in order",
        turn(
            "t",
            ev("transition.decided", state="s1", verdict="stay", candidates=["a"]),
            ev("transition.decided", state="s2", verdict="go"),
        ),
        {f"{T}/verdict/state": "s2", f"{T}/verdict/verdict": "go"},
    ),
    Case(
        "guard blocks and coercions of the session",
        turn(
            "t",
            *(
                ev("guard.evaluated", guard="g", outcome=o)
                for o in ("blocked", "coerced", "coerced", "passed")
            ),
        ),
        {"sessions/0/guard_blocks": 1, "sessions/0/guard_coercions": 2},
    ),
    Case(
        "C22: filled is zero, false, empty; missing is null or absent",
        turn(
            "t",
            slots(
                "after",
                {"count": 0, "flag": False, "text": "", "name": None, "extra": 1},
                ["count", "flag", "text", "name", "gone"],
            ),
        ),
        {
            f"{T}/required_slots_in_state": names("count", "flag", "text", "name", "gone"),
            f"{T}/missing_required_slots": names("name", "gone"),
        },
    ),
    Case(
        "required slots come from the snapshot after the transition",
        turn("t", slots("before", {"a": None}, ["a"]), slots("after", {"b": None}, ["b"])),
        {f"{T}/required_slots_in_state": ["b"], f"{T}/missing_required_slots": ["b"]},
    ),
    Case(
        "a snapshot before says nothing of what is required",
        turn("t", slots("before", {"a": None}, ["a"])),
        {f"{T}/required_slots_in_state": None, f"{T}/missing_required_slots": None},
    ),
    Case(
        "of several after-snapshots the last counts",
        turn("t", slots("after", {"a": None}, ["a"]), slots("after", {"a": 1}, ["a"])),
        {f"{T}/missing_required_slots": []},
    ),
    Case(
        "a written slot explains its change",
        turn("t", slots("before", {"a": 1}), wrote("a", 1, 2), slots("after", {"a": 2})),
        {f"{T}/slot_diff": [{"slot": "a", "old": 1, "new": 2}], f"{T}/unattributed_diff": []},
    ),
    Case(
        "a change that no event explains is unattributed",
        turn("t", slots("before", {"a": 1, "b": 1}), slots("after", {"a": 2, "b": 1})),
        {f"{T}/unattributed_diff": [{"slot": "a", "old": 1, "new": 2}]},
    ),
    Case(
        "dict values are compared",
        turn("t", slots("before", {"a": {"x": 1, "y": [1]}}), slots("after", {"a": {"y": [2], "x": 1}})),
        {f"{T}/unattributed_diff": [{"slot": "a", "old": {"x": 1, "y": [1]}, "new": {"x": 1, "y": [2]}}]},
    ),
    Case(
        "an equal dict in another order is no change",
        turn("t", slots("before", {"a": {"x": 1, "y": [1]}}), slots("after", {"a": {"y": [1.0], "x": 1}})),
        {f"{T}/unattributed_diff": []},
    ),
    Case(
        "true is not one",
        turn("t", slots("before", {"a": True}), slots("after", {"a": 1})),
        {f"{T}/unattributed_diff/*/slot": ["a"]},
    ),
    Case(
        "a change after the last event that explains the slot is unattributed, the written one stays",
        turn("t", slots("before", {"a": 1}), wrote("a", 1, 2), slots("after", {"a": 3})),
        {
            f"{T}/slot_diff": [{"slot": "a", "old": 1, "new": 2}],
            f"{T}/unattributed_diff": [{"slot": "a", "old": 2, "new": 3}],
        },
    ),
    Case(
        "a removed slot changed to absent",
        turn("t", slots("before", {"a": 1}), slots("after", {})),
        {
            f"{T}/unattributed_diff/*/slot": ["a"],
            f"{T}/unattributed_diff/*/old": [1],
            f"{T}/unattributed_diff/*/new": [None],
        },
    ),
    Case(
        "without snapshots nothing is known of unattributed changes",
        turn("t", wrote("a", 1, 2)),
        {f"{T}/slot_diff/*/slot": ["a"], f"{T}/unattributed_diff": None},
    ),
    Case(
        "a turn without such events has none of the fields",
        turn("t"),
        {
            f"{T}/{name}": None
            for name in (
                "slot_diff",
                "unattributed_diff",
                "verdict",
                "guards_evaluated",
                "truncated",
                "answer",
                "context",
                "compactions",
                "limits",
                "errors",
                "unattributed",
                "inherited_usage",
                "user_input",
                "turn_index",
                "run_id",
            )
        },
    ),
    Case(
        "schema version, kind and revision",
        turn("t", kind="eval", run="r1"),
        {
            f"{T}/schema_version": 2,
            f"{T}/kind": "eval",
            f"{T}/run_id": "r1",
            f"{T}/revision": 1,
            f"{T}/turn_id": "t",
        },
    ),
    Case(
        "a turn's kind is its first event's",
        [*turn("t", ev("message.recorded", role="user", text="x", kind="import"))],
        {f"{T}/kind": "live"},
    ),
    Case(
        "counts of point events",
        turn(
            "t",
            ev("net.requested", domain="a", port=1, decision="allowed"),
            ev("dns.queried", qname="a", qtype="A"),
            ev("fs.changed", action="created", path="/a"),
            ev("process.started", exec_id=1, command="ls"),
            ev("security.decided", stage="x"),
            ev("security.asked", ask_id="1", status="open"),
        ),
        {f"{T}/counts": {"events": 8, "net": 1, "dns": 1, "fs": 1, "process": 1, "security": 2}},
    ),
    Case(
        "spans of every stream of the turn",
        turn(
            "t",
            ev("net.requested", domain="a", port=1, decision="allowed", producer="vm", seq=4),
            ev("dns.queried", qname="a", qtype="A", producer="vm", seq=7),
        ),
        {
            f"{T}/seq_spans": [
                {"producer": "harness", "epoch": 0, "stream": "ledger", "from": 0, "to": 1},
                {"producer": "vm", "epoch": 0, "stream": "ledger", "from": 4, "to": 7},
            ],
            f"{T}/gaps/*/state": ["open"],
            f"{T}/gaps/0/from_seq": 5,
            f"{T}/gaps/0/to_seq": 6,
            f"{T}/grade": "gaps",
            "gaps/*/from_seq": [0, 5],
            "sessions/0/open_gaps": 2,
        },
    ),
    Case(
        "an event without a number has no span",
        turn("t", ev("net.requested", domain="a", port=1, decision="allowed", receipt="r1", producer="otlp")),
        {f"{T}/seq_spans/*/producer": ["harness"]},
    ),
    Case(
        "errors of a failed call and of a failed turn",
        [
            ev("turn.started", turn="t"),
            ev(
                "model_call.failed",
                turn="t",
                call="1",
                provider="anthropic",
                error_class="timeout",
                message="slow",
                status_code=504,
            ),
            ev("turn.completed", turn="t", status="failed", error="gave up"),
        ],
        {
            f"{T}/status": "failed",
            f"{T}/errors/*/message": ["slow", None],
            f"{T}/errors/*/error": [None, "gave up"],
        },
    ),
    Case(
        "round trips are distinct calls, failed ones too",
        turn(
            "t",
            ev("model_call.failed", call="1", provider="anthropic", error_class="timeout"),
            done({"output": 1}, call="2"),
            done({"output": 1}, call="2"),
        ),
        {f"{T}/round_trips": 2},
    ),
    Case(
        "T4-04: events of turn index 0, 1, 1",
        [ev("message.recorded", role="assistant", text=str(i), index=i) for i in (0, 1, 1)],
        {
            "turns/*/turn_key": ["#0", "#1"],
            "turns/*/counts/events": [1, 2],
            "turns/*/assigned_by": ["index", "index"],
            "turns/*/turn_index": [0, 1],
        },
    ),
    Case(
        "T4-05: ends after events 2 and 5 of 6",
        [
            ev("turn.completed") if i in (1, 4) else ev("guard.evaluated", guard=str(i), outcome="passed")
            for i in range(6)
        ],
        {
            "turns/*/counts/events": [2, 3, 1],
            "turns/*/status": ["completed", "completed", "open"],
            "turns/*/assigned_by": ["boundary"] * 3,
        },
    ),
    Case(
        "T4-06: no index, no boundary, no time: the first turn, by fallback",
        [*turn("a"), *turn("b"), ev("guard.evaluated", guard="g", outcome="passed", producer="p", at=None)],
        {"turns/*/counts/events": [3, 2], "turns/*/assigned_by": ["fallback", "id"]},
    ),
    Case(
        "stop's last event",
        turn("t", TEXT, ANSWER),
        {f"{T}/stop/last_event": "answer.finalized"},
    ),
    Case(
        "an open turn's last event",
        turn("t", TEXT, end=None),
        {f"{T}/stop/last_event": "model_call.completed", f"{T}/status": "open"},
    ),
    Case(
        "a turn that another start follows is abandoned",
        [*turn("a", end=None), *turn("b")],
        {"turns/*/status": ["abandoned", "completed"], "checks/turn_without_end": 1},
    ),
    Case(
        "an open turn of a running session is no finding",
        turn("t", end=None),
        {
            "turns/*/status": ["open"],
            "checks/turn_without_end": None,
            "checks/turn_open_in_ended_session": None,
            f"{T}/grade": "complete",
        },
    ),
    Case(
        "a turn without start is partial, a finding",
        [ev("message.recorded", role="assistant", text="x", turn="t"), ev("turn.completed", turn="t")],
        {f"{T}/grade": "partial", "checks/turn_without_start": 1},
    ),
    Case(
        "two indexes of one id: the first shown, a finding",
        [
            ev("turn.started", turn="t", index=3),
            ev("turn.completed", turn="t", index=4),
            ev("guard.evaluated", guard="g", outcome="passed", index=4),
        ],
        {"turns/*/turn_index": [3], f"{T}/counts/events": 3, "checks/turn_two_indexes": 1},
    ),
    Case(
        "an index of two ids: events with the index alone are a turn of their own, a finding",
        [
            *turn("a", index=1),
            *turn("b", index=1),
            ev("guard.evaluated", guard="g", outcome="passed", index=1),
        ],
        {"turns/*/turn_key": ["a", "b", "#1"], "checks/turn_index_ambiguous": 1},
    ),
)
def test_turn_fields(case: Case) -> None:
    assert found(case) == case.expected
