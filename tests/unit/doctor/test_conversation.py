"""A conversation says each thing once, in the form of the timeline; its lines fit a terminal and move no cursor."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.cells import cell_len

from turnledger.contract.event import Event
from turnledger.contract.reader import read
from turnledger.doctor.conversation import Conversation, Line, Recent, every
from turnledger.doctor.line import Page, begin, fit, one_line
from turnledger.doctor.timeline import Asked, as_row, shown


def event(type_: str, /, payload: dict[str, Any] | None = None, **fields: Any) -> Event:
    found = read(
        json.dumps({"session_id": "s", "seq": 0, "type": type_, "payload": payload or {}, **fields}).encode()
    )
    assert isinstance(found, Event), found
    return found


def said(role: str, text: str | None = None, /, **fields: Any) -> Event:
    payload = {"role": role} | ({} if text is None else {"text": text}) | fields.pop("payload", {})
    return event("message.recorded", payload, **fields)


def told(*events: Event | tuple[Event, int | None], columns: int = 120) -> list[str]:
    conversation = Conversation()
    lines: list[Line] = []
    for one in events:
        read_event, tool_calls = one if isinstance(one, tuple) else (one, None)
        lines += conversation.read(read_event, tool_calls)
    lines += conversation.end()
    page = Page(io.StringIO(), columns=columns)
    return [shown(page, number, line) for number, line in enumerate(lines)]


def asked(name: str, arguments: Any = None, **fields: Any) -> Event:
    return event("tool_call.requested", {"tool_name": name, "arguments": arguments}, **fields)


def answered(**fields: Any) -> Event:
    return event("tool_call.completed", fields.pop("payload", {"status": "ok"}), **fields)


def test_t1_01_seven_lines_in_the_form_of_the_log() -> None:
    assert told(
        said("user", "Write it"),
        asked("bash", {"command": "ls"}, tool_call_id="1"),
        answered(tool_call_id="1", payload={"preview": "a.txt"}),
        asked("write_file", {"path": "b"}, tool_call_id="2"),
        answered(tool_call_id="2", payload={"preview": "written"}),
        said("assistant", "Written.", payload={"tool_calls": 2}),
        said("assistant", "Done.", payload={"tool_calls": []}),
    ) == [
        '[0] USER "Write it"',
        '[1] TOOL bash {"command":"ls"}',
        "[2] RES bash a.txt",
        '[3] TOOL write_file {"path":"b"}',
        "[4] RES write_file written",
        '[5] ASST tool_calls=2 "Written."',
        '[6] ASST tool_calls=0 "Done."',
    ]


LONG = "Fix the build, it fails since the parser was merged"


@pytest.mark.parametrize(
    "events",
    [
        (event("turn.started", {"input_preview": LONG}), said("user", LONG + " and nobody knows why")),
        (said("user", LONG + " and nobody knows why"), event("turn.started", {"input_preview": LONG})),
    ],
    ids=["start first", "message first"],
)
def test_a_turn_that_repeats_the_users_message_says_it_once(events: tuple[Event, ...]) -> None:
    assert told(*events) == [f'[0] USER "{LONG} and nobody knows why"']


def test_a_turn_without_a_message_says_its_input() -> None:
    assert told(event("turn.started", {"input_preview": "Go"}), asked("bash")) == [
        '[0] USER "Go"',
        "[1] TOOL bash",
    ]


def test_two_short_inputs_are_two_although_one_begins_the_other() -> None:
    assert told(said("user", "y"), event("turn.started", {"input_preview": "yes"})) == [
        '[0] USER "y"',
        '[1] USER "yes"',
    ]


def test_a_derived_start_says_nothing() -> None:
    assert told(event("turn.started", {"input_preview": "Go"}, provenance="derived"), said("user", "Go")) == [
        '[0] USER "Go"'
    ]


@pytest.mark.parametrize("message_first", [True, False])
def test_a_call_and_its_message_are_one_line(message_first: bool) -> None:
    message = said("assistant", "I look.", model_call_id="c")
    done = event("model_call.completed", {"provider": "p"}, model_call_id="c")
    pair = [(message, 1), (done, 1)] if message_first else [(done, 1), (message, 1)]
    assert told(*pair) == ['[0] ASST tool_calls=1 "I look."']


def test_an_answer_that_was_said_is_not_said_again() -> None:
    done = event("model_call.completed", {"provider": "p", "text": "42"}, model_call_id="c")
    assert told((done, 0), (event("answer.finalized", {"text": "42", "exact": True}), None)) == [
        '[0] ASST tool_calls=0 "42"'
    ]


def test_an_id_that_each_turn_counts_anew_hides_no_words() -> None:
    def exchange(turn: str) -> list[Event | tuple[Event, int | None]]:
        done = event("model_call.completed", {"provider": "p"}, model_call_id="1", turn_id=turn)
        return [event("turn.started", {"input_preview": turn}, turn_id=turn), (done, 0)]

    assert told(*exchange("a"), *exchange("b")) == [
        '[0] USER "a"',
        "[1] ASST tool_calls=0",
        '[2] USER "b"',
        "[3] ASST tool_calls=0",
    ]


def test_what_is_not_known_is_no_zero() -> None:
    assert told(said("assistant", "Hm.")) == ['[0] ASST tool_calls=– "Hm."']


def test_a_result_of_a_tool_is_nobodys_message() -> None:
    content = [{"type": "tool_result", "text": "x"}]
    assert told(said("user", payload={"content": content}), said("user", "x", tool_call_id="t")) == []


def test_an_error_and_a_denial_are_results_with_their_words() -> None:
    assert told(
        asked("bash", tool_call_id="1", turn_id="t"),
        answered(tool_call_id="1", turn_id="t", payload={"status": "error", "error_message": "no such file"}),
        event("tool_call.denied", {"by": "guard", "reason": "outside"}, tool_call_id="9"),
    ) == ["[0] TOOL bash", "[1] RES bash error: no such file", "[2] RES – denied by guard: outside"]


def test_every_event_has_a_line_of_its_own() -> None:
    names = Recent()
    page = Page(io.StringIO(), columns=120)
    net = event("net.requested", {"domain": "a.example", "port": 443, "decision": "denied", "method": "GET"})
    odd = event("vendor.thing", {"a": 1, "b": {"c": 2}, "d": "x"})
    lines = [shown(page, n, every(one, names)) for n, one in enumerate((net, odd, said("system", "Be kind")))]
    assert lines == [
        "[0] net.requested GET a.example denied",
        "[1] vendor.thing a=1 d=x",
        "[2] message.recorded system Be kind",
    ]


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r\n\x7f名前" + "é\u0301" * 400 + "名" * 400


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_no_line_is_wider_than_the_terminal_or_moves_its_cursor(columns: int) -> None:
    lines = told(
        said("user", HOSTILE),
        asked(HOSTILE, {HOSTILE: HOSTILE}, tool_call_id="1"),
        answered(tool_call_id="1", payload={"status": "error", "error_message": HOSTILE}),
        said("assistant", HOSTILE),
        columns=columns,
    )
    page = Page(io.StringIO(), columns=columns)
    lines.append(shown(page, 10**9, every(event("x" + HOSTILE[:30], {"a": HOSTILE}), Recent()), times=True))
    for line in lines:
        assert cell_len(line) <= columns
        assert line.isprintable(), line


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    line = Line("USER", said("user", "x"), "x")
    assert "\x1b[" in shown(Page(Terminal()), 0, line)
    assert "\x1b" not in shown(Page(io.StringIO()), 0, line)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(Page(Terminal()), 0, line)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in shown(Page(Terminal()), 0, line)


def test_a_text_that_is_cut_says_so_and_counts_wide_characters_twice() -> None:
    assert fit("abcdef", 4) == "abc…"
    assert fit("名前名前", 4) == "名…"
    assert fit("名前", 4) == "名前"
    assert one_line("a\n\t b\x1b") == "a b\\x1b"
    assert cell_len(begin("x" * 1_000_000, 10)) == 10


@pytest.mark.parametrize(
    ("rows", "tool_calls"),
    [
        ([("t", None, "c", 2)], 2),
        ([("other", None, "c", 2)], 0),
        ([("t", None, "c", 2), ("other", None, "c", 3)], 2),
        ([("t", None, None, 1)], None),
        ([("other", None, None, 1)], 0),
    ],
    ids=["its own", "another turn's", "one id in two turns", "asked for by nobody knows whom", "elsewhere"],
)
def test_a_call_asked_for_as_many_tools_as_name_it_in_its_turn(
    rows: list[Any], tool_calls: int | None
) -> None:
    assert Asked(rows).by(said("assistant", "x", model_call_id="c", turn_id="t")) == tool_calls


def test_a_call_without_a_turn_that_two_turns_have_is_not_known() -> None:
    rows = [("t", None, "c", 2), ("u", None, "c", 3)]
    assert Asked(rows).by(said("assistant", "x", model_call_id="c")) is None


def test_a_row_of_json_is_whole() -> None:
    line = Line("USER", said("user", "x" * 5000, occurred_at="2026-03-01T12:00:00+01:00"), "x" * 5000)
    row = as_row(3, line, payload=True)
    assert (row["n"], row["at"], len(row["text"])) == (3, "2026-03-01T11:00:00.000000Z", 5000)
    assert row["payload"] == {"role": "user", "text": "x" * 5000}
