"""Contract 8, "Calls seen in several sessions": sameness, owner, inherited figures."""

from __future__ import annotations

from typing import Any

from tests.unit.contract_cases.envelopes import Case, Envelope, done, ev, found, running, table, turn

OWNERS = "model_calls/*/owner_session_id"
SUMS = "sessions/*/total_input_tokens"


def said(n: int, message: str | None = None, call: str | None = None, **given: Any) -> Envelope:
    """A call of ``n`` input and 1 output tokens."""
    ids = {**({} if message is None else {"message_id": message}), **({} if call is None else {"call": call})}
    return done({"input": n, "output": given.pop("output", 1), "cache_read": 0}, **ids, **given)


def forked(s: str, parent: str, at_seq: int | None = None, **given: Any) -> Envelope:
    more = {} if at_seq is None else {"at_seq": at_seq}
    return ev("session.forked", s=s, parent_session_id=parent, **more, **given)


@table(
    Case(
        "C5: a fork's copies and two resumes are counted once",
        [
            *turn("t", said(10, "a"), said(20, "b"), said(30, "c"), s="p"),
            forked("f", "p"),
            *turn("t", said(10, "a"), said(20, "b"), said(30, "c"), said(5, "d"), s="f"),
            *(
                event
                for s in ("f2", "f3")
                for event in (
                    forked(s, "f"),
                    *turn("t", said(10, "a"), said(20, "b"), said(30, "c"), said(5, "d"), s=s),
                )
            ),
        ],
        {
            "sessions/*/session_id": ["f", "f2", "f3", "p"],
            SUMS: [5, None, None, 60],
            "sessions/*/inherited_usage/total_input": [60, 65, 65, None],
            "usage_hourly/*/total_input_tokens": [65],
            "turns/*/usage/total_input": [5, None, None, 60],
            "sessions/*/model_call_count": [1, 0, 0, 3],
        },
    ),
    Case(
        "the parent owns its fork's copy even when the fork was heard earlier",
        [*turn("t", said(10, "a"), s="a"), forked("a", "p"), *turn("t", said(10, "a"), s="p")],
        {OWNERS: ["p", "p"], SUMS: [None, 10]},
    ),
    Case(
        "without a relation the earliest copy owns",
        [*turn("t", said(10, "a"), s="z"), *turn("t", said(10, "a"), s="b")],
        {OWNERS: ["z", "z"], SUMS: [None, 10]},
    ),
    Case(
        "a copy without times owns last",
        [*turn("t", said(10, "a", at=None), s="b", at=None), *turn("t", said(10, "a"), s="z")],
        {OWNERS: ["z", "z"]},
    ),
    Case(
        "at equal times the least session id owns",
        [
            *turn("t", said(10, "a", at="2026-05-04T10:00:00Z"), s="z"),
            *turn("t", said(10, "a", at="2026-05-04T10:00:00Z"), s="b"),
        ],
        {OWNERS: ["b", "b"]},
    ),
    Case(
        "times are compared as instants",
        [
            *turn("t", said(10, "a", at="2026-05-04T10:00:00+02:00"), s="z"),
            *turn("t", said(10, "a", at="2026-05-04T09:00:00Z"), s="b"),
        ],
        {OWNERS: ["z", "z"]},
    ),
    Case(
        "parent_session_id puts the parent first",
        [*turn("t", said(10, "a", parent="p"), s="a"), *turn("t", said(10, "a"), s="p")],
        {OWNERS: ["p", "p"]},
    ),
    Case(
        "a cycle of parents is void, a finding: the earliest owns",
        [*turn("t", said(10, "a", parent="b"), s="a"), *turn("t", said(10, "a", parent="a"), s="b")],
        {OWNERS: ["a", "a"], "checks/fork_cycle": 1},
    ),
    Case(
        "live owns before eval",
        [*turn("t", said(10, "a"), s="a", kind="eval", run="r"), *turn("t", said(10, "a"), s="b")],
        {OWNERS: ["b", "b"]},
    ),
    Case(
        "what is marked inherited does not own where another holds it",
        [*turn("t", said(10, "a", provenance="inherited"), s="a"), *turn("t", said(10, "a"), s="b")],
        {
            OWNERS: ["b", "b"],
            "sessions/0/inherited_usage/total_input": 10,
            "checks/inherited_without_source": None,
        },
    ),
    Case(
        "a sole holder owns what is marked inherited, a finding",
        turn("t", said(10, "a", provenance="inherited")),
        {OWNERS: ["s"], SUMS: [10], "checks/inherited_without_source": 1},
    ),
    Case(
        "another model's equal message_id is another call",
        [*turn("t", said(10, "a"), s="a"), *turn("t", said(10, "a", model="n"), s="b")],
        {OWNERS: ["a", "b"]},
    ),
    Case(
        "another provider's, too",
        [*turn("t", said(10, "a"), s="a"), *turn("t", said(10, "a", provider="openai"), s="b")],
        {OWNERS: ["a", "b"]},
    ),
    Case(
        "a differing input figure makes two calls",
        [*turn("t", said(10, "a"), s="a"), *turn("t", said(11, "a"), s="b")],
        {OWNERS: ["a", "b"]},
    ),
    Case(
        "differing output makes two calls of unrelated sessions",
        [*turn("t", said(10, "a"), s="a"), *turn("t", said(10, "a", output=2), s="b")],
        {OWNERS: ["a", "b"]},
    ),
    Case(
        "a descendant's copy may differ in output",
        [*turn("t", said(10, "a"), s="a"), *turn("t", said(10, "a", output=2, parent="a"), s="b")],
        {OWNERS: ["a", "a"]},
    ),
    Case(
        "an unknown figure differs from none",
        [
            *turn("t", said(10, "a"), s="a"),
            *turn("t", done({"input": 10, "output": 1}, message_id="a"), s="b"),
        ],
        {OWNERS: ["a", "a"]},
    ),
    Case(
        "without one equal known input figure nothing is the same",
        [
            *turn("t", done({"output": 1}, message_id="a"), s="a"),
            *turn("t", done({"output": 1}, message_id="a"), s="b"),
        ],
        {OWNERS: ["a", "b"]},
    ),
    Case(
        "an equal total input is an equal input figure",
        [
            *turn("t", done({"input": 10, "output": 1}, message_id="a", provider="openai"), s="a"),
            *turn("t", done({"input": 10, "output": 1}, message_id="a", provider="openai"), s="b"),
        ],
        {OWNERS: ["a", "a"]},
    ),
    Case(
        "without message_ids equal figures mean nothing",
        [*turn("t", said(10, call="1"), s="a"), *turn("t", said(10, call="1"), s="b")],
        {OWNERS: ["a", "b"]},
    ),
    Case(
        "a fork with at_seq: an equal turn and model_call_id at or before it is the same call",
        [
            *turn("t", said(10, call="1"), said(20, call="2"), s="p"),
            forked("f", "p", 1),
            *turn("t", said(10, call="1"), said(20, call="2"), s="f"),
        ],
        {OWNERS: ["p", "f", "p", "p"], SUMS: [20, 30]},
    ),
    Case(
        "a fork without at_seq makes none the same by model_call_id",
        [*turn("t", said(10, call="1"), s="p"), forked("f", "p"), *turn("t", said(10, call="1"), s="f")],
        {OWNERS: ["f", "p"]},
    ),
    Case(
        "parent_session_id alone makes none the same by model_call_id",
        [*turn("t", said(10, call="1"), s="p"), *turn("t", said(10, call="1", parent="p"), s="f")],
        {OWNERS: ["f", "p"]},
    ),
    Case(
        "a fork with at_seq: the model_call_id alone where each side has exactly one",
        [*turn("t", said(10, call="1"), s="p"), forked("f", "p", 9), *turn("u", said(10, call="1"), s="f")],
        {OWNERS: ["p", "p"]},
    ),
    Case(
        "two of one model_call_id on a side need their turns",
        [
            *turn("t", said(10, call="1"), s="p"),
            *turn("u", said(20, call="1"), s="p"),
            forked("f", "p", 9),
            *turn("v", said(10, call="1"), s="f"),
        ],
        {OWNERS: ["f", "p", "p"]},
    ),
    Case(
        "a fork with at_seq: differing message_ids are two calls",
        [
            *turn("t", said(10, "a", call="1"), s="p"),
            forked("f", "p", 9),
            *turn("t", said(10, "b", call="1"), s="f"),
        ],
        {OWNERS: ["f", "p"]},
    ),
    Case(
        "a fork with at_seq: one side's message_id does not differ from none",
        [
            *turn("t", said(10, "a", call="1"), s="p"),
            forked("f", "p", 9),
            *turn("t", said(10, call="1"), s="f"),
        ],
        {OWNERS: ["p", "p"]},
    ),
    Case(
        "at_seq speaks of the parent's stream of the forked event's name",
        [
            *turn("t", {**said(10, call="1"), "stream": "other"}, s="p"),
            forked("f", "p", 9),
            *turn("t", said(10, call="1"), s="f"),
        ],
        {OWNERS: ["f", "p"]},
    ),
    Case(
        "an inherited event names its source by message_id",
        [*turn("t", said(10, "a"), s="p"), *turn("t", said(11, "a", provenance="inherited"), s="f")],
        {OWNERS: ["p", "p"]},
    ),
    Case(
        "an inherited event names its source by model_call_id in the parent session",
        [
            *turn("t", said(10, call="1"), s="p"),
            *turn("u", said(10, call="1", provenance="inherited", parent="p"), s="f"),
        ],
        {OWNERS: ["p", "p"], SUMS: [None, 10]},
    ),
    Case(
        "an inherited event names its source by model_call_id in the session it was forked from",
        [
            *turn("t", said(10, call="1"), s="p"),
            forked("f", "p"),
            *turn("u", said(10, call="1", provenance="inherited"), s="f"),
        ],
        {OWNERS: ["p", "p"]},
    ),
    Case(
        "an inherited event finds no model_call_id in a stranger",
        [
            *turn("t", said(10, call="1"), s="p"),
            *turn("u", said(10, call="1", provenance="inherited"), s="f"),
        ],
        {OWNERS: ["f", "p"], "checks/inherited_without_source": 1},
    ),
    Case(
        "sameness is transitive",
        [
            *turn("t", said(10, "a"), s="a"),
            *turn("t", done({"input": 10}, message_id="a"), s="b"),
            *turn("t", said(10, "a", output=2), s="c"),
        ],
        {OWNERS: ["a", "a", "a"]},
    ),
    Case(
        "another tenant's equal call is another call",
        [*turn("t", said(10, "a"), s="a", tenant="x"), *turn("t", said(10, "a"), s="a", tenant="y")],
        {"model_calls/*/inherited": [False, False], SUMS: [10, 10]},
    ),
    Case(
        "an inherited call is shown in its turn, without its figures in the sum",
        [*turn("t", said(10, "a"), s="a"), *turn("t", said(10, "a"), said(5, "b"), s="b")],
        {
            "turns/1/model_calls/*/inherited": [True, False],
            "turns/1/model_calls/*/usage/total_input": [10, 5],
            "turns/1/usage/total_input": 5,
            "turns/1/usage/total": 1,
            "turns/1/inherited_usage/total_input": 10,
            "turns/1/round_trips": 2,
        },
    ),
    Case(
        "an eval session's own calls do not own live ones but count there",
        turn("t", said(10, "a"), kind="eval", run="r"),
        {OWNERS: ["s"], "usage_hourly": [], "sessions/0/kind": "eval", SUMS: [10]},
    ),
    Case(
        "the turn's digest does not know who owns its calls",
        [*turn("t", said(10, "a"), s="a"), *turn("t", said(10, "a"), s="b"), running(1, s="c")],
        {"turns/0/model_calls/0/inherited": False, "turns/1/model_calls/0/inherited": True},
    ),
    Case(
        "a turn all of whose events are inherited is not counted",
        [
            *turn(
                "t",
                said(10, "a", provenance="inherited"),
                ev("message.recorded", role="user", text="x", provenance="inherited"),
                s="f",
                provenance="inherited",
            ),
            *turn("u", ev("message.recorded", role="user", text="y"), s="f"),
        ],
        {"sessions/0/turn_count": 1, "sessions/0/message_count": 1},
    ),
)
def test_several_sessions(case: Case) -> None:
    assert found(case) == case.expected
