"""What the VMs of the demo's fleet do: one script for each style of harness, different in identity, boundaries, counters and tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnledger.demo.vm import Vm, command, exclusive_usage, inclusive_usage, ms, traffic

COMMANDS = (
    "pytest -q tests",
    "rg TODO src",
    "git diff --stat",
    "python build.py",
    "sed -n 1,80p src/main.py",
    "ls -la",
)
ASKS = (
    "Find out why the nightly build fails",
    "Add a retry to the uploader",
    "Explain the parser's states",
    "Make the report ten times faster",
    "Write a test for the empty queue",
    "Rename the field and fix all callers",
)


def sandbox(vm: Vm) -> None:
    """A VM sandbox around a coding agent: turn ids, exact responses, tools side by side, rate limits that are retried."""
    _begin(vm, "coder", "claude-sonnet-4-5")
    while not vm.over:
        turn = f"turn-{vm.hex(6)}"
        began = vm.now
        vm.write("turn.started", {"input_preview": vm.word(*ASKS)}, turn_id=turn)
        context = 6_000
        for step in range(vm.rng.randint(2, 4)):
            call = _call(
                vm,
                "anthropic",
                "claude-sonnet-4-5",
                turn_id=turn,
                domain="api.anthropic.com",
                context=context,
                last=step == 3,
            )
            context += 2_500
            if call is None:
                continue
            _tools(vm, vm.rng.randint(1, 3), turn_id=turn, model_call_id=call)
        _answer(vm, turn, began)
    _end(vm, "stopped")


def counting(vm: Vm) -> None:
    """A coding agent that reports running totals of its thread: usage is what a turn adds to them."""
    _begin(vm, "codex", "gpt-5-codex")
    thread = f"thread-{vm.hex(8)}"
    total = {"input": 0, "cache_read": 0, "output": 0, "reasoning": 0}
    context = 4_000
    while not vm.over:
        turn = f"turn-{vm.hex(6)}"
        began = vm.now
        vm.write("turn.started", {"input_preview": vm.word(*ASKS), "provider_thread": thread}, turn_id=turn)
        for _ in range(vm.rng.randint(2, 4)):
            call = vm.call_id()
            vm.write(
                "model_call.started",
                {"provider": "openai", "model": "gpt-5-codex"},
                turn_id=turn,
                model_call_id=call,
            )
            took = vm.wait(0.5, 1.6)
            traffic(vm, "api.openai.com", path="/v1/responses")
            vm.write(
                "model_call.completed",
                {"provider": "openai", "model": "gpt-5-codex", "status_code": 200, "latency_ms": ms(took)},
                turn_id=turn,
                model_call_id=call,
            )
            last = inclusive_usage(vm, context)
            context += 1_800
            total = {name: total[name] + last[name] for name in total}
            report = {
                "usage": total,
                "last": last,
                "counter_kind": "cumulative",
                "token_convention": "inclusive",
                "usage_stream": thread,
                "provider": "openai",
                "model": "gpt-5-codex",
                "provider_thread": thread,
            }
            vm.write("usage.reported", report, turn_id=turn)
            _tools(vm, vm.rng.randint(1, 2), turn_id=turn, model_call_id=call)
        _answer(vm, turn, began, status="interrupted" if vm.rng.random() < 0.15 else "completed")
    _end(vm, "stopped")


def transcript(vm: Vm) -> None:
    """An agent known by its transcript: records have ids instead of numbers, usage grows while it streams."""
    _begin(vm, "claude-code", "claude-opus-4-5")
    vm.write("stream.declared", {"stream": "transcript", "density": "unknown"})
    written: dict[str, Any] = {"stream": "transcript"}
    context = 9_000
    while not vm.over:
        prompt = f"prompt-{vm.hex(8)}"
        vm.write(
            "message.recorded",
            {"role": "user", "text": vm.word(*ASKS)},
            receipt_key=f"u/{prompt}",
            turn_id=prompt,
            **written,
        )
        vm.write("turn.started", receipt_key=f"s/{prompt}", turn_id=prompt, **written)
        for _ in range(vm.rng.randint(1, 3)):
            message, call = f"msg_{vm.hex(16)}", vm.call_id()
            traffic(vm, "api.anthropic.com")
            ids: dict[str, Any] = {"turn_id": prompt, "model_call_id": call, **written}
            usage = exclusive_usage(vm, context)
            context += 2_000
            for part, share in enumerate((0.1, 1.0)):
                vm.wait(0.3, 1.0)
                growing = usage | {"output": max(1, int(usage["output"] * share))}
                report: dict[str, Any] = {
                    "usage": growing,
                    "counter_kind": "snapshot",
                    "source": "transcript",
                    "provider": "anthropic",
                    "model": "claude-opus-4-5",
                    "message_id": message,
                }
                if share == 1.0:
                    report |= {"stop_reason": "tool_use", "final": True}
                vm.write("usage.reported", report, receipt_key=f"{message}/{part}", **ids)
            _tools(vm, vm.rng.randint(1, 2), turn_id=prompt, model_call_id=call)
        vm.write(
            "message.recorded",
            {"role": "assistant", "text": "Done."},
            receipt_key=f"a/{prompt}",
            turn_id=prompt,
            **written,
        )
        vm.write(
            "turn.completed", {"status": "completed"}, receipt_key=f"e/{prompt}", turn_id=prompt, **written
        )
        vm.wait(0.3, 1.0)
    _end(vm, "stopped")


def chat(vm: Vm) -> None:
    """A chat runtime: turns by index, guards, slots and transitions in a stream of their own, thoughts counted apart."""
    _begin(vm, "concierge", "gemini-2.5-pro")
    states: dict[str, Any] = {"stream": "state_trace"}
    booked = False
    index = 0
    while not vm.over:
        began = vm.now
        ids: dict[str, Any] = {"turn_index": index, "trace_id": f"trace-{vm.hex(8)}"}
        vm.write(
            "turn.started",
            {"input_preview": vm.word("A table for two", "Tomorrow at seven", "Is there parking?")},
            **ids,
        )
        vm.write("guard.evaluated", {"guard": "language", "outcome": "passed"}, **ids, **states)
        outcome = vm.word("passed", "passed", "coerced", "blocked")
        vm.write("guard.evaluated", {"guard": "personal_data", "outcome": outcome}, **ids, **states)
        slots = {"party": "redacted:2" if booked else None, "time": None}
        vm.write(
            "state.observed",
            {"state": "booking", "slots": slots, "required": ["party", "time"], "when": "before"},
            **ids,
            **states,
        )
        call = vm.call_id()
        vm.write(
            "model_call.started", {"provider": "google", "model": "gemini-2.5-pro"}, model_call_id=call, **ids
        )
        took = vm.wait(0.6, 1.8)
        traffic(vm, "generativelanguage.googleapis.com", path="/v1beta/models/gemini-2.5-pro:generateContent")
        usage = {
            "input": vm.rng.randint(1_200, 4_000),
            "cache_read": 0,
            "output": vm.rng.randint(30, 200),
            "reasoning": vm.rng.randint(50, 400),
        }
        vm.write(
            "model_call.completed",
            {
                "provider": "google",
                "model": "gemini-2.5-pro",
                "status_code": 200,
                "latency_ms": ms(took),
                "stop_reason": "STOP",
                "usage": usage,
                "token_convention": "inclusive_thoughts_separate",
            },
            model_call_id=call,
            **ids,
        )
        vm.write("slot.written", {"slot": "party", "old": None, "new": "redacted:2"}, **ids, **states)
        booked = True
        vm.write(
            "state.observed",
            {
                "state": "booking",
                "slots": {"party": "redacted:2", "time": None},
                "required": ["party", "time"],
                "when": "after",
            },
            **ids,
            **states,
        )
        vm.write(
            "transition.decided",
            {"state": "booking", "verdict": "stay", "candidates": ["stay", "confirm"]},
            **ids,
            **states,
        )
        _tools(vm, 1, model_call_id=call, **ids)
        vm.write("answer.finalized", {"text": "Noted. At what time?", "exact": True}, **ids)
        vm.write("turn.completed", {"status": "completed", "duration_ms": ms(vm.now - began)}, **ids)
        index += 1
        vm.wait(0.2, 0.8)
    _end(vm, "stopped")


def connected(vm: Vm) -> None:
    """An agent whose tools live behind MCP servers; some are denied, some fail; it crashes at the end."""
    _begin(vm, "researcher", "gpt-5-mini")
    while not vm.over:
        turn = f"turn-{vm.hex(6)}"
        began = vm.now
        vm.write("turn.started", {"input_preview": vm.word(*ASKS)}, turn_id=turn)
        context = 3_000
        for _ in range(vm.rng.randint(1, 3)):
            call = _call(
                vm,
                "openai",
                "gpt-5-mini",
                turn_id=turn,
                domain="api.openai.com",
                context=context,
                convention="inclusive",
            )
            context += 1_200
            if call is None:
                continue
            _mcp(vm, turn, call)
            if vm.rng.random() < 0.3:
                traffic(vm, "tracker.example.net", decision="denied", path="/collect")
            if vm.rng.random() < 0.25:
                ids: dict[str, Any] = {
                    "turn_id": turn,
                    "model_call_id": call,
                    "tool_call_id": f"tool-{vm.hex(8)}",
                }
                vm.write(
                    "tool_call.requested",
                    {"tool_name": "shell", "call_tool_origin": "native", "arguments": "rm -rf build"},
                    **ids,
                )
                vm.write("tool_call.denied", {"by": "policy", "rule": "no-recursive-delete"}, **ids)
        _answer(vm, turn, began)
    # In the middle of a turn: it stays without an end.
    vm.write("turn.started", {"input_preview": "One more thing"}, turn_id=f"turn-{vm.hex(6)}")
    _end(vm, "crashed", exit_code=137)


SCRIPTS: tuple[Callable[[Vm], None], ...] = (sandbox, counting, transcript, chat, connected)


def _begin(vm: Vm, agent: str, model: str) -> None:
    vm.write(
        "session.started",
        {"agent": agent, "mode": "vm", "name": f"{agent} on {vm.session_id}", "model": model},
    )


def _end(vm: Vm, status: str, **more: Any) -> None:
    vm.write("session.ended", {"status": status, **more})


def _answer(vm: Vm, turn: str, began: float, *, status: str = "completed") -> None:
    if status == "completed":
        vm.write(
            "answer.finalized",
            {"text": vm.word("Done, the tests pass.", "Here is what I found.", "Fixed."), "exact": True},
            turn_id=turn,
        )
    vm.write("turn.completed", {"status": status, "duration_ms": ms(vm.now - began)}, turn_id=turn)
    vm.wait(0.3, 1.2)


def _call(
    vm: Vm,
    provider: str,
    model: str,
    *,
    turn_id: str,
    domain: str,
    context: int,
    convention: str = "exclusive",
    last: bool = False,
) -> str | None:
    """A model call; one in eight meets the rate limit first and is retried. ``None``: it failed for good."""
    call = vm.call_id()
    ids: dict[str, Any] = {"turn_id": turn_id, "model_call_id": call}
    vm.write("model_call.started", {"provider": provider, "model": model}, **ids)
    if vm.rng.random() < 0.125:
        vm.wait(0.1, 0.3)
        vm.write(
            "model_call.retried",
            {"attempt": 1, "max_attempts": 3, "delay_ms": 400, "error_class": "rate_limit"},
            **ids,
        )
        vm.wait(0.3, 0.5)
    took = vm.wait(0.5, 1.8)
    traffic(vm, domain)
    if vm.rng.random() < 0.04:
        vm.write(
            "model_call.failed",
            {"provider": provider, "model": model, "error_class": "overloaded", "status_code": 529},
            **ids,
        )
        return None
    usage = exclusive_usage(vm, context) if convention == "exclusive" else inclusive_usage(vm, context)
    vm.write(
        "model_call.completed",
        {
            "provider": provider,
            "model": model,
            "message_id": f"msg_{vm.hex(16)}",
            "status_code": 200,
            "stop_reason": "end_turn" if last else "tool_use",
            "latency_ms": ms(took),
            "ttft_ms": ms(took / 4),
            "usage": usage,
            "token_convention": convention,
        },
        **ids,
    )
    return call


def _tools(vm: Vm, count: int, **ids: Any) -> None:
    """``count`` tools of one model call, side by side: requested together, ended in any order, handed back together."""
    calls = [f"tool-{vm.hex(8)}" for _ in range(count)]
    for number, tool in enumerate(calls):
        line = vm.word(*COMMANDS)
        vm.write(
            "tool_call.requested",
            {"tool_name": "shell", "call_tool_origin": "native", "call_index": number, "arguments": line},
            tool_call_id=tool,
            **ids,
        )
    ends = []
    for tool in calls:
        vm.write("tool_call.started", {"tool_name": "shell"}, tool_call_id=tool, **ids)
        ends.append((vm.rng.uniform(0.1, 0.9), tool))
    began = vm.now
    for took, tool in sorted(ends):
        failed = vm.rng.random() < 0.1
        command(vm, vm.word(*COMMANDS), at=began, took=took, exit_code=1 if failed else 0)
        result: dict[str, Any] = {
            "tool_name": "shell",
            "status": "error" if failed else "ok",
            "duration_ms": ms(took),
        }
        if failed:
            result["error_message"] = "exit status 1"
        vm.write("tool_call.completed", result, tool_call_id=tool, at=began + took, **ids)
    vm.now = began + max(took for took, _ in ends)
    vm.write("tool_results.submitted", {"tool_call_ids": calls}, **ids)


def _mcp(vm: Vm, turn: str, call: str) -> None:
    """A tool of an MCP server: the model's request, the protocol's own two messages, the result."""
    tool, request = f"tool-{vm.hex(8)}", vm.hex(4)
    server, name = vm.word("search", "tickets"), vm.word("query", "fetch")
    ids: dict[str, Any] = {"turn_id": turn, "model_call_id": call, "tool_call_id": tool}
    vm.write(
        "tool_call.requested",
        {"tool_name": f"{server}__{name}", "call_tool_origin": "mcp", "server_name": server},
        **ids,
    )
    seen = {"method": "tools/call", "server_name": server, "tool_name": name, "request_id": request}
    vm.write("mcp.observed", seen | {"direction": "request"}, tool_call_id=tool, stream="bus")
    took = vm.wait(0.1, 0.6)
    vm.write("mcp.observed", seen | {"direction": "response"}, tool_call_id=tool, stream="bus")
    failed = vm.rng.random() < 0.15
    result: dict[str, Any] = {
        "tool_name": f"{server}__{name}",
        "status": "error" if failed else "ok",
        "duration_ms": ms(took),
        "server_name": server,
    }
    if failed:
        result["error_message"] = "the server answered -32000"
    vm.write("tool_call.completed", result | {"bytes_received": vm.rng.randint(200, 20_000)}, **ids)
