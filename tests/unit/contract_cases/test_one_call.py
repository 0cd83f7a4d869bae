"""Contract 8, "One call": which events are one model call, sentence by sentence."""

from __future__ import annotations

from tests.unit.contract_cases.envelopes import Case, done, ev, found, report, table, turn

SOME = {"input": 10, "output": 5, "cache_read": 0}
IDS = "model_calls/*/model_call_id"
OUTPUTS = "model_calls/*/output_tokens"


def started(**given: object) -> dict[str, object]:
    return ev("model_call.started", provider="anthropic", model="m", **given)


def failed(**given: object) -> dict[str, object]:
    return ev(
        "model_call.failed", **{"provider": "anthropic", "model": "m", "error_class": "rate_limit", **given}
    )


@table(
    Case(
        "an equal provider and message_id are one call, whatever their model_call_ids",
        turn("t", done(SOME, call="1", message_id="a"), done(SOME, call="9", message_id="a", producer="p")),
        {OUTPUTS: [5], "checks/message_id_reused": None},
    ),
    Case(
        "an equal message_id of two providers is two calls",
        turn("t", done(SOME, message_id="a"), done(SOME, message_id="a", provider="openai")),
        {OUTPUTS: [5, 5]},
    ),
    Case(
        "an event without provider takes the only one seen with its message_id",
        turn("t", done(SOME, message_id="a"), report({"output": 9, "cache_read": 0}, message_id="a")),
        {OUTPUTS: [5], "turns/0/usage/total": 1},
    ),
    Case(
        "an event without provider takes the only one of its turn and model_call_id",
        turn(
            "t",
            done(SOME, call="1", message_id="a"),
            done(SOME, message_id="a", provider="openai"),
            report({"output": 9}, call="1", message_id="a", source="transcript"),
        ),
        {OUTPUTS: [5, 5]},
    ),
    Case(
        "an event without provider and two providers seen with its message_id is a call of its own",
        turn(
            "t",
            done(SOME, message_id="a"),
            done(SOME, message_id="a", provider="openai"),
            report({"output": 9}, message_id="a"),
        ),
        {OUTPUTS: [5, 5, 9]},
    ),
    Case(
        "where one lacks the message_id an equal request_id is one call",
        turn("t", done(SOME, message_id="a", request_id="r"), report({"output": 4}, request_id="r")),
        {OUTPUTS: [5]},
    ),
    Case(
        "where both lack it, too",
        turn("t", done(SOME, request_id="r", call="1"), done(SOME, request_id="r", producer="p", call="7")),
        {OUTPUTS: [5]},
    ),
    Case(
        "a request_id joins over turns",
        [*turn("a", done(SOME, request_id="r")), *turn("b", report({"output": 4}, request_id="r"))],
        {OUTPUTS: [5], "model_calls/*/turn_key": ["a"]},
    ),
    Case(
        "a request_id seen with two message_ids joins nothing",
        turn(
            "t",
            done(SOME, message_id="a", request_id="r"),
            done(SOME, message_id="b", request_id="r"),
            report({"output": 4}, request_id="r"),
        ),
        {OUTPUTS: [5, 5, 4]},
    ),
    Case(
        "a request_id that one stream gives to two model_call_ids joins nothing",
        turn("t", done(SOME, call="1", request_id="r"), done(SOME, call="2", request_id="r")),
        {OUTPUTS: [5, 5], IDS: ["1", "2"]},
    ),
    Case(
        "an equal model_call_id of one turn is one call",
        turn("t", started(call="1"), done(SOME, call="1")),
        {OUTPUTS: [5]},
    ),
    Case(
        "an equal model_call_id of two turns is two",
        [*turn("a", done(SOME, call="1")), *turn("b", done(SOME, call="1"))],
        {OUTPUTS: [5, 5]},
    ),
    Case(
        "an equal model_call_id outside turns is one call",
        [done(SOME, call="1"), done(SOME, call="1")],
        {OUTPUTS: [5], "model_calls/*/turn_key": [None]},
    ),
    Case(
        "a call's turn is that of its first event that has one",
        [
            *turn("a", report(SOME, message_id="x", provider="anthropic")),
            *turn("b", done(SOME, message_id="x")),
        ],
        {"model_calls/*/turn_key": ["a"], "turns/*/round_trips": [1, 0]},
    ),
    Case(
        "a message_id that one stream gives to two model_call_ids is no identity",
        turn("t", done(SOME, call="1", message_id="a"), done(SOME, call="2", message_id="a")),
        {OUTPUTS: [5, 5], "checks/message_id_reused": 1},
    ),
    Case(
        "a reused message_id: its events of one model_call_id are still one call",
        turn(
            "t",
            started(call="1"),
            done(SOME, call="1", message_id="a"),
            done(SOME, call="2", message_id="a"),
            report({"output": 3}, call="2", message_id="a", counter_kind="snapshot", provider="anthropic"),
        ),
        {OUTPUTS: [5, 5], IDS: ["1", "2"]},
    ),
    Case(
        "one model_call_id with two message_ids in a turn is two calls; events without join the earlier",
        turn(
            "t",
            started(call="1"),
            done({**SOME, "output": 1}, call="1", message_id="a"),
            done({**SOME, "output": 2}, call="1", message_id="b"),
            report({"reasoning": 7}, call="1", provider="anthropic"),
        ),
        {OUTPUTS: [1, 2], "model_calls/*/reasoning_tokens": [7, None]},
    ),
    Case(
        "a completion without ids belongs to the start before it",
        turn("t", started(call="1"), done(SOME)),
        {OUTPUTS: [5], IDS: ["1"]},
    ),
    Case(
        "neither has ids: still start and completion are one call",
        turn("t", started(), done(SOME)),
        {OUTPUTS: [5]},
    ),
    Case(
        "completions without ids take the latest unpaired start first",
        turn("t", started(call="1"), started(call="2"), done({"output": 1}), done({"output": 2})),
        {IDS: ["1", "2"], OUTPUTS: [2, 1]},
    ),
    Case(
        "a completion with a model_call_id of its own takes no start of another id",
        turn("t", started(call="1"), done(SOME, call="2")),
        {IDS: ["1", "2"], OUTPUTS: [None, 5]},
    ),
    Case(
        "a completion with a model_call_id takes no start without ids",
        turn("t", started(), done(SOME, call="2")),
        {IDS: [None, "2"]},
    ),
    Case(
        "a completion with a message_id takes the start that has none",
        turn("t", started(call="1"), done(SOME, message_id="a")),
        {IDS: ["1"], "model_calls/*/message_id": ["a"]},
    ),
    Case(
        "a completion takes no start of another message_id",
        turn("t", started(call="1", message_id="b"), done(SOME, message_id="a")),
        {"model_calls/*/message_id": ["b", "a"]},
    ),
    Case(
        "a completion takes no start of another request_id",
        turn("t", started(call="1", request_id="q"), done(SOME, request_id="r")),
        {"model_calls/*/request_id": ["q", "r"]},
    ),
    Case(
        "a completion takes no start of another stream",
        turn("t", started(call="1"), done(SOME, producer="p")),
        {OUTPUTS: [None, 5]},
    ),
    Case(
        "a completion takes no start of another turn",
        [*turn("a", started(call="1")), *turn("b", done(SOME))],
        {OUTPUTS: [None, 5]},
    ),
    Case(
        "a completion takes no start that comes later",
        turn("t", done(SOME), started(call="1")),
        {OUTPUTS: [5, None]},
    ),
    Case(
        "a failure without ids belongs to the start before it, the retry to the next",
        turn("t", started(call="1"), failed(), started(call="2"), done(SOME)),
        {IDS: ["1", "2"], "model_calls/*/status": ["failed", "completed"], OUTPUTS: [None, 5]},
    ),
    Case(
        "a start that an id joined to its end is no unpaired start",
        turn("t", started(call="1"), started(call="2"), done({"output": 2}, call="2"), done({"output": 1})),
        {IDS: ["1", "2"], OUTPUTS: [1, 2]},
    ),
    Case(
        "per-call reports that name no call are calls of their own",
        turn("t", report({"output": 1}, provider="anthropic"), report({"output": 1}, provider="anthropic")),
        {OUTPUTS: [1, 1], "model_calls/*/call_key": ["@harness/0/ledger/1", "@harness/0/ledger/2"]},
    ),
    Case(
        "a snapshot without ids belongs to the latest open call of its stream",
        turn("t", started(call="1"), started(call="2"), report({"output": 7}, counter_kind="snapshot")),
        {IDS: ["1", "2"], OUTPUTS: [None, 7], "checks/usage_snapshot_without_call": None},
    ),
    Case(
        "a snapshot without ids after the call's end is kept, not counted",
        turn("t", started(call="1"), done(SOME, call="1"), report({"output": 7}, counter_kind="snapshot")),
        {OUTPUTS: [5], "checks/usage_snapshot_without_call": 1, "turns/0/counts/events": 5},
    ),
    Case(
        "a snapshot without ids of another stream finds no call",
        turn("t", started(call="1"), report({"output": 7}, counter_kind="snapshot", producer="p")),
        {OUTPUTS: [None], "checks/usage_snapshot_without_call": 1},
    ),
    Case(
        "a delta or a retry without ids and without a call is ignored",
        turn("t", ev("model_call.delta", ordinal=0, text="x"), ev("model_call.retried", attempt=2)),
        {"model_calls": [], "findings": [], "turns/0/round_trips": 0},
    ),
    Case(
        "a retry without ids belongs to the latest open call of its stream",
        turn("t", started(call="1"), ev("model_call.retried", attempt=2), done(SOME, call="1")),
        {"model_calls/*/retries": [2]},
    ),
    Case(
        "a snapshot of a new message makes a row",
        turn("t", report({"output": 7}, message_id="a", provider="anthropic", counter_kind="snapshot")),
        {OUTPUTS: [7]},
    ),
    Case(
        "a mention elsewhere makes no row",
        turn(
            "t",
            ev("tool_call.requested", tool="x", call="9", tool_name="bash"),
            ev("tool_call.completed", tool="x", status="ok"),
        ),
        {"model_calls": [], "checks/call_without_record": 1, "tool_calls/*/requested_by": ["9"]},
    ),
    Case(
        "a retry that names a call makes no row",
        turn("t", ev("model_call.retried", call="9", attempt=2, error_class="timeout")),
        {"model_calls": []},
    ),
    Case(
        "a running total or a rollup that names a call makes no row",
        turn(
            "t",
            report({"input": 9}, call="9", counter_kind="cumulative", provider="anthropic"),
            report({"input": 9}, call="8", counter_kind="rollup", provider="anthropic"),
        ),
        {"model_calls": []},
    ),
    Case(
        "completed beats failed on one call, in whatever order",
        turn("t", done(SOME, call="1"), failed(call="1"), failed(call="2"), done(SOME, call="2")),
        {"model_calls/*/status": ["completed", "completed"], "sessions/0/failed_model_calls": 0},
    ),
    Case(
        "C19: two failures and a success",
        turn(
            "t",
            failed(call="1", status_code=429),
            failed(call="2", status_code=429),
            done({"input": 20, "output": 5, "cache_read": 0}, call="3"),
        ),
        {
            "model_calls/*/status": ["failed", "failed", "completed"],
            "model_calls/*/retries": [0, 1, 2],
            "turns/0/usage/total_input": 20,
            "turns/0/usage/reported": 1,
            "turns/0/usage/total": 1,
            "sessions/0/model_call_count": 3,
            "sessions/0/failed_model_calls": 2,
        },
    ),
    Case(
        "failures of another model are no tries of this one",
        turn("t", failed(call="1", model="other"), done(SOME, call="2")),
        {"model_calls/*/retries": [0, 0]},
    ),
    Case(
        "only failures directly before a call are its tries",
        turn("t", failed(call="1"), done(SOME, call="2"), done(SOME, call="3")),
        {"model_calls/*/retries": [0, 1, 0]},
    ),
    Case(
        "failures of an earlier turn are no tries",
        [*turn("a", failed(call="1")), *turn("b", done(SOME, call="2"))],
        {"model_calls/*/retries": [0, 0]},
    ),
    Case(
        "the greatest attempt reported beats fewer failures seen",
        turn(
            "t",
            failed(call="1"),
            ev("model_call.retried", call="2", attempt=4),
            ev("model_call.retried", call="2", attempt=3),
            done(SOME, call="2"),
        ),
        {"model_calls/*/retries": [0, 4]},
    ),
    Case(
        "a failed call's figures are unknown unless reported",
        turn("t", failed(call="1"), failed(call="2", usage={"input": 7, "output": 1, "cache_read": 0})),
        {
            OUTPUTS: [None, 1],
            "model_calls/*/fidelity": ["unknown", "lower_bound"],
            "turns/0/usage/total_input": 7,
            "turns/0/usage/reported": 1,
            "turns/0/usage/total": 1,
            "sessions/0/failed_model_calls": 2,
        },
    ),
    Case(
        "provider and model are those of the best completion",
        turn(
            "t",
            ev("model_call.started", call="1", provider="anthropic", model="asked"),
            report({**SOME, "output": 99}, call="1", provider="anthropic", model="told", message_id="a"),
            done(SOME, call="1", model="answered"),
        ),
        {"model_calls/*/model": ["answered"]},
    ),
    Case(
        "without a completion, of the best report",
        turn(
            "t",
            ev("model_call.started", call="1", provider="anthropic", model="asked"),
            report(SOME, call="1", provider="anthropic", model="small", counter_kind="snapshot"),
            report(
                {**SOME, "output": 99}, call="1", provider="anthropic", model="told", counter_kind="snapshot"
            ),
        ),
        {"model_calls/*/model": ["told"]},
    ),
    Case(
        "without either, of the earliest",
        turn("t", ev("model_call.started", call="1", provider="anthropic", model="asked"), end=None),
        {"model_calls/*/model": ["asked"], "model_calls/*/status": ["started"]},
    ),
    Case(
        "calls stand in the order of their first events",
        turn("t", started(call="b"), started(call="a"), done(SOME, call="a"), done(SOME, call="b")),
        {IDS: ["b", "a"], "turns/0/model_calls/*/index": [0, 1]},
    ),
    Case(
        "C5b: equal model_call_ids of a sub-agent and its parent are two calls",
        [*turn("t", done(SOME, call="1")), *turn("t", done(SOME, call="1", parent="s"), s="z")],
        {"model_calls/*/inherited": [False, False]},
    ),
    Case(
        "C27: a transcript's figures of one message give way to the response's",
        turn(
            "t",
            done({**SOME, "output": 118}, message_id="a"),
            done({**SOME, "output": 120}, message_id="a", source="transcript", producer="p"),
        ),
        {OUTPUTS: [118], "model_calls/*/usage_source": ["response"]},
    ),
)
def test_one_call(case: Case) -> None:
    assert found(case) == case.expected
