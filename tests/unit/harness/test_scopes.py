"""Turns, model calls and tool calls as scopes: each begins once and ends once on every path; what it is about was frozen at its dispatch."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.harness.folded import catalogue
from turnledger.contract.types import EVENT_TYPES
from turnledger.fold.document import document
from turnledger.harness import AsyncLedger, Ledger, LedgerError, SpoolFull, event_methods
from turnledger.harness.collecting import Collector, Taps
from turnledger.harness.typed import Telling
from turnledger.pricing import price_call

AWAY = "kafka://127.0.0.1:9"


class Told:
    """A ledger with a file, and what is in the file when it is closed."""

    def __init__(self, folder: Path, session: str = "s") -> None:
        self._file = folder / f"{session}.events"
        self.ledger = Ledger(session_id=session, sink=f"file:{self._file}", spool=folder / f"{session}.spool")

    def events(self) -> list[dict[str, Any]]:
        self.ledger.close()
        return [json.loads(line) for line in self._file.read_bytes().splitlines()]

    def raw(self) -> list[bytes]:
        self.ledger.close()
        return self._file.read_bytes().splitlines()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    made = Told(tmp_path)
    yield made
    made.ledger.close()


def folded(lines: list[bytes]) -> Any:
    return document(lines, partial(price_call, catalogue()))


def ends(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in events if event["type"] == kind]


def test_three_scopes_say_everything_that_a_turn_needs(told: Told) -> None:
    with told.ledger.turn(turn_id="t1", turn_index=0, input_preview="fix it") as turn:
        with turn.model_call("anthropic", model="m-1", model_call_id="c1") as call:
            call.first_token()
            call.complete(
                usage={"input": 10, "cache_read": 0, "output": 5}, message_id="msg-1", stop_reason="tool_use"
            )
            tool = call.tool_call("bash", tool_call_id="x1", arguments={"command": "ls"})
        with tool:
            tool.complete(preview="README.md")
        turn.answer_finalized(text="done", exact=True)
    assert [
        (e["type"], e.get("turn_id"), e.get("model_call_id"), e.get("tool_call_id")) for e in told.events()
    ] == [
        ("turn.started", "t1", None, None),
        ("model_call.started", "t1", "c1", None),
        ("model_call.completed", "t1", "c1", None),
        ("tool_call.requested", "t1", "c1", "x1"),
        ("tool_call.started", "t1", "c1", "x1"),
        ("tool_call.completed", "t1", "c1", "x1"),
        ("answer.finalized", "t1", None, None),
        ("turn.completed", "t1", None, None),
    ]
    (turn_row,) = folded(told.raw())["turns"]
    assert (turn_row["status"], turn_row["grade"], turn_row["usage"]["total_input"]) == (
        "completed",
        "complete",
        10,
    )
    assert [(c["status"], c["pairing"]) for c in turn_row["tool_calls"]] == [("ok", "paired")]


def leave_by_return(turn: Any) -> None:
    with turn:
        return


def leave_by(error: BaseException) -> Callable[[Any], None]:
    def leave(turn: Any) -> None:
        with pytest.raises(type(error)), turn:
            raise error

    return leave


def leave_a_generator(turn: Any) -> None:
    def going() -> Iterator[int]:
        with turn:
            yield 1

    for _ in going():
        break


@pytest.mark.parametrize(
    ("leave", "status", "error"),
    [
        (leave_by_return, "completed", None),
        (leave_by(ValueError("no such file")), "failed", "ValueError: no such file"),
        (leave_by(TimeoutError()), "failed", "TimeoutError"),
        (leave_by(asyncio.CancelledError()), "interrupted", "CancelledError"),
        (leave_by(KeyboardInterrupt()), "interrupted", "KeyboardInterrupt"),
        (leave_by(SystemExit(3)), "aborted", "SystemExit: 3"),
        (leave_a_generator, "aborted", "GeneratorExit"),
    ],
    ids=["return", "exception", "timeout", "cancelled", "ctrl-c", "exit", "generator"],
)
def test_a_turn_ends_once_on_every_path(
    told: Told, leave: Callable[[Any], None], status: str, error: str | None
) -> None:
    leave(told.ledger.turn())
    (end,) = ends(told.events(), "turn.completed")
    assert (end["status"], end.get("error")) == (status, error)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError("no answer"), "timeout"),
        (asyncio.CancelledError(), "cut"),
        (RuntimeError("429 Too Many Requests"), "rate_limit"),
        (RuntimeError("boom"), "other"),
    ],
)
def test_an_error_that_goes_through_a_model_call_is_its_failure(
    told: Told, error: BaseException, kind: str
) -> None:
    with pytest.raises(type(error)), told.ledger.turn() as turn, turn.model_call("openai", model="m"):
        raise error
    events = told.events()
    (failed,) = ends(events, "model_call.failed")
    assert (failed["error_class"], failed["provider"], failed["model"]) == (kind, "openai", "m")
    assert ends(events, "model_call.completed") == []


def test_a_call_that_nobody_completed_has_an_unknown_usage_and_not_zero(told: Told) -> None:
    with told.ledger.turn() as turn, turn.model_call("openai"):
        pass
    (call,) = folded(told.raw())["model_calls"]
    assert (call["status"], call["input_uncached_tokens"], call["output_tokens"]) == ("completed", None, None)


def test_an_error_that_goes_through_a_tool_is_its_result(told: Told) -> None:
    with told.ledger.turn() as turn, pytest.raises(OSError), turn.tool_call("bash"):
        raise OSError("disk gone")
    (done,) = ends(told.events(), "tool_call.completed")
    assert (done["status"], done["tool_name"], done["error_message"]) == (
        "error",
        "bash",
        "OSError: disk gone",
    )


def test_a_denied_tool_was_asked_for_and_has_no_result(told: Told) -> None:
    with told.ledger.turn() as turn:
        turn.tool_call("rm", tool_call_id="x").deny("policy", rule="no rm")
        with turn.tool_call("cat", tool_call_id="y") as running:
            running.deny("user")
    assert [(e["type"], e["tool_call_id"]) for e in told.events() if "tool_call_id" in e] == [
        ("tool_call.requested", "x"),
        ("tool_call.denied", "x"),
        ("tool_call.requested", "y"),
        ("tool_call.started", "y"),
        ("tool_call.denied", "y"),
    ]


def test_start_and_close_may_come_any_number_of_times_and_the_first_end_stands(told: Told) -> None:
    turn = told.ledger.turn()
    turn.start().start()
    turn.end("failed", "first")
    turn.end("completed")
    turn.close()
    turn.start()
    never = told.ledger.turn()
    never.close()
    never.start()
    tool = told.ledger.tool_call("bash")
    tool.request().request().start().start()
    tool.fail("no")
    tool.complete()
    assert [e["type"] for e in told.events()] == [
        "turn.started",
        "turn.completed",
        "tool_call.requested",
        "tool_call.started",
        "tool_call.completed",
    ]
    assert ends(told.events(), "turn.completed")[0]["status"] == "failed"


def test_threads_that_close_one_scope_end_it_once(told: Told) -> None:
    turn = told.ledger.turn().start()
    threads = [threading.Thread(target=turn.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [e["type"] for e in told.events()] == ["turn.started", "turn.completed"]


def test_what_is_open_when_the_ledger_closes_ends_then_the_inner_first(told: Told) -> None:
    turn = told.ledger.turn().start()
    call = turn.model_call("openai").start()
    call.tool_call("bash").start()
    events = told.events()
    assert [e["type"] for e in events[-3:]] == ["tool_call.completed", "model_call.failed", "turn.completed"]
    assert (events[-2]["payload"]["error_class"], events[-1]["payload"]["status"]) == ("cut", "aborted")


def test_an_end_that_found_no_room_can_be_told_again(tmp_path: Path) -> None:
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool", on_full="raise", spool_bytes=400)
    turn = ledger.turn().start()
    with pytest.raises(SpoolFull):
        turn.end("failed", "x" * 300)
    assert turn._piece.running
    ledger._spooled._spool._limit = 10_000  # type: ignore[union-attr]
    turn.end("failed")
    assert not turn._piece.running
    ledger.close(seconds=0)


# -- async


class AsyncTold(Told):
    def __init__(self, folder: Path) -> None:
        self._file = folder / "events"
        self.later = AsyncLedger(session_id="s", sink=f"file:{self._file}", spool=folder / "spool")

    async def told(self) -> list[dict[str, Any]]:
        await self.later.close()
        return [json.loads(line) for line in self._file.read_bytes().splitlines()]


async def test_the_async_form_does_the_same(tmp_path: Path) -> None:
    told = AsyncTold(tmp_path)
    async with told.later as ledger, ledger.turn(turn_id="t") as turn:
        async with turn.model_call("openai", model_call_id="c") as call:
            await call.complete(usage={"input": 1})
            async with call.tool_call("bash", tool_call_id="x") as tool:
                await tool.complete()
        await turn.slot_written(slot="a", new=1)
        assert [(fact.type, fact.payload["slot"]) for fact in turn.facts] == [("slot.written", "a")]
    assert [(e["type"], e["turn_id"]) for e in await told.told()] == [
        (kind, "t")
        for kind in (
            "turn.started",
            "model_call.started",
            "model_call.completed",
            "tool_call.requested",
            "tool_call.started",
            "tool_call.completed",
            "slot.written",
            "turn.completed",
        )
    ]


async def test_a_cancelled_task_and_a_timeout_end_what_was_open(tmp_path: Path) -> None:
    told = AsyncTold(tmp_path)
    await told.later.start()

    async def work(id: str) -> None:
        async with (
            told.later.turn(turn_id=id) as turn,
            turn.model_call("openai") as call,
            call.tool_call("bash"),
        ):
            await asyncio.sleep(60)

    task = asyncio.create_task(work("cancelled"))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await work("timed out")
    events = await told.told()
    assert [(e["turn_id"], e["payload"]["status"]) for e in events if e["type"] == "turn.completed"] == [
        ("cancelled", "interrupted"),
        ("timed out", "interrupted"),
    ]
    assert [p["error_class"] for p in ends(events, "model_call.failed")] == ["cut", "cut"]
    assert [p["status"] for p in ends(events, "tool_call.completed")] == ["error", "error"]
    assert not told.later.open_scopes and not len(told.later.taps)


# -- attribution, frozen at dispatch


def test_a_later_change_of_the_callers_objects_does_not_reach_work_under_way(told: Told) -> None:
    origin = {"task": "a"}
    with told.ledger.turn(turn_id="t1", origin=origin) as first:
        tool = first.tool_call("bash", tool_call_id="x")
        origin["task"] = "b"
    with told.ledger.turn(turn_id="t2", origin=origin), tool:
        pass
    assert {(e["turn_id"], e["origin"]["task"]) for e in told.events() if e.get("tool_call_id") == "x"} == {
        ("t1", "a")
    }


def test_work_that_runs_elsewhere_tells_about_itself_under_what_it_was_handed(told: Told) -> None:
    with told.ledger.turn(turn_id="t1", origin={"host": "h"}) as turn:
        work = turn.dispatched(origin={"exec": "7"}, trace_id="tr")
    told.ledger.turn(turn_id="t2").start()
    thread = threading.Thread(target=lambda: work.process_exited(exec_id="7", exit_code=0))
    thread.start()
    thread.join()
    (event,) = [e for e in told.events() if e["type"] == "process.exited"]
    assert (event["turn_id"], event["trace_id"], event["origin"]) == ("t1", "tr", {"host": "h", "exec": "7"})


def test_an_event_cannot_be_put_down_to_another_turn_than_its_work(told: Told) -> None:
    with told.ledger.turn(turn_id="t1") as turn:
        with pytest.raises(LedgerError, match="dispatched with turn_id 't1'"):
            turn.emit("x.y", turn_id="t2")
        with pytest.raises(LedgerError, match="origin is no object"):
            turn.dispatched(origin={"f": object()})


# -- the collector (session facts, T4-12 to T4-14)


def test_t4_12_nothing_is_collected_that_is_not_the_turns(tmp_path: Path) -> None:
    mine, other = Told(tmp_path, "mine"), Told(tmp_path, "other")
    turn = mine.ledger.turn(turn_id="t1")
    turn.slot_written(slot="before the start", new=1)
    turn.start().start()
    other.ledger.slot_written(slot="other session", new=1)
    mine.ledger.message_recorded(role="user", text="irrelevant type")
    mine.ledger.slot_written(slot="other turn", new=1, turn_id="t2")
    mine.ledger.slot_written(slot="collected", new=1)
    turn.close()
    turn.close()
    turn.start()
    mine.ledger.slot_written(slot="after close", new=1)
    assert [fact.payload["slot"] for fact in turn.facts] == ["collected"]
    assert len(mine.ledger.taps) == 0
    mine.ledger.close()
    other.ledger.close()


def test_t4_12_a_collector_on_a_bus_of_many_sessions_takes_its_own() -> None:
    taps = Taps()
    collector = Collector(taps, "s", "t")
    for _ in range(2):
        collector.start()
    for session in ("s", "other"):
        envelope = {"session_id": session, "type": "guard.evaluated", "payload": {"guard": session}}
        taps.tell(0, "guard.evaluated", json.dumps(envelope).encode())
    for _ in range(2):
        collector.close()
    assert [fact.payload for fact in collector.facts] == [{"guard": "s"}]
    assert len(taps) == 0


def test_t4_13_a_slot_that_a_tool_writes_in_mid_stream_is_collected(told: Told) -> None:
    with told.ledger.turn() as turn, turn.model_call("openai") as call:
        tool = call.tool_call("book").start()
        thread = threading.Thread(target=lambda: tool.slot_written(slot="day", new="monday"))
        thread.start()
        thread.join()
        collected_before_the_result = [fact.payload["slot"] for fact in turn.facts]
        tool.complete()
    assert collected_before_the_result == ["day"]
    assert "monday" not in json.dumps([dict(fact.payload) for fact in turn.facts])  # the redacted form alone


def test_t4_14_a_short_circuit_closes_the_collector_and_the_record_is_whole(told: Told) -> None:
    def answer(choice: str | None) -> str:
        with told.ledger.turn(turn_id="t", input_preview="two") as turn:
            turn.slot_written(slot="choice", new=choice)
            if choice is not None:
                turn.transition_decided(state="choosing", verdict="locked", candidates=[choice])
                turn.answer_finalized(text=choice, exact=True)
                return choice
            turn.model_call("openai").start()
            raise AssertionError("not reached")

    assert answer("two") == "two"
    assert len(told.ledger.taps) == 0
    (turn,) = folded(told.raw())["turns"]
    assert (turn["status"], turn["verdict"]["verdict"], turn["answer"]["text"]) == (
        "completed",
        "locked",
        "two",
    )
    assert [change["slot"] for change in turn["slot_diff"]] == ["choice"]


# -- a method for each event type


def test_each_event_type_has_a_typed_method_that_emits_it(tmp_path: Path) -> None:
    emitted: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    class Heard(Telling[int]):
        def emit(self, type: str, payload: Any = None, **about: Any) -> int:
            emitted.append((type, payload, about))
            return len(emitted) - 1

    heard = Heard()
    for kind, model in EVENT_TYPES.items():
        method = getattr(heard, kind.replace(".", "_"))
        names = [name for name in model.model_fields if name != "redactions"]
        assert [name for name in inspect.signature(method).parameters if name not in ("more", "about")] == (
            sorted(names, key=lambda name: not model.model_fields[name].is_required())
        )
        method(**dict.fromkeys(names, "x"), more={"own": 1}, turn_id="t")
        assert emitted[-1] == (kind, {"own": 1, **dict.fromkeys(names, "x")}, {"turn_id": "t"})
    assert len(emitted) == len(EVENT_TYPES)


def test_the_generated_methods_are_those_of_the_models() -> None:
    assert ast.dump(ast.parse(event_methods.PATH.read_text())) == ast.dump(ast.parse(event_methods.source()))
