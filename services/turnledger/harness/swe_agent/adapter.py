"""Owns what a trajectory of SWE-agent or mini-swe-agent means in events: one run is one session with one turn.

``README.md`` beside this file says where each figure comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from turnledger.harness import saying
from turnledger.harness.documents import Document
from turnledger.harness.facts import (
    SESSION_LIMIT,
    Envelope,
    Notes,
    count,
    cut,
    digest,
    each_object,
    identified,
    identifier,
    known,
    mapping,
    moment_of,
    money,
    objects,
    parsed,
    taken_over,
    text,
)
from turnledger.harness.format import Format
from turnledger.harness.sources import Source
from turnledger.harness.telling import ANSWERED, ENDED, STARTED, Told

PRODUCER = "swe-agent"
OUTPUT_VERSION = 1
TURN = "run"
LIMITS = {"exit_cost": "cost", "exit_context": "token_budget", "LimitsExceeded": "cost"}
FAILED = frozenset({"exit_format", "exit_error", "exit_api", "exit_environment_error", "exit_forfeit"})


def is_document(document: Document) -> bool:
    """Whether a JSON value is a trajectory."""
    top = mapping(document.top)
    if str(top.get("trajectory_format", "")).startswith("mini-swe-agent"):
        return True
    info = top.get("info")
    if not isinstance(info, dict) or ("exit_status" not in info and "model_stats" not in info):
        return False
    return isinstance(top.get("trajectory"), list) or isinstance(top.get("history"), list) or _is_mini(top)


def _is_mini(top: Mapping[str, Any]) -> bool:
    return isinstance(top.get("messages"), list) and "mini_version" in mapping(top.get("info"))


def read(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of one run."""
    document = source.document()
    if document is None:
        return
    if isinstance(mapping(document.top).get("messages"), list):
        yield from _mini(document, source, notes)
    elif mapping(document.top):
        yield from _trajectory(document, source, notes)


def _session(source: Source, instance: str | None, first: Any) -> str:
    """An instance is run many times: its name and the beginning of the run, which a longer copy shares, make the session."""
    if source.session is not None:
        return source.session
    return cut(instance or "run", SESSION_LIMIT - 24)[0] + f"-{digest(taken_over(first))}"


def _trajectory(document: Document, source: Source, notes: Notes) -> Iterator[Envelope]:
    top = mapping(document.top)
    info, config = mapping(top.get("info")), mapping(parsed(top.get("replay_config")))
    problem, agent = mapping(config.get("problem_statement")), mapping(config.get("agent"))
    model = identifier(mapping(agent.get("model")).get("name"), 256)
    first = next(_steps(document), None)
    begun = (
        [{name: first.get(name) for name in ("response", "action", "execution_time")}]
        if first is not None
        else list(islice(_history(document), 3))
    )
    session = _session(
        source, identifier(problem.get("id")) or identifier(top.get("environment")), [begun, model]
    )
    told = Told(PRODUCER, OUTPUT_VERSION, session)
    yield from told.declared()
    yield told.event(
        "session.started", known({"agent": PRODUCER, "model": model}), key="session", rank=STARTED
    )
    task = next(
        (
            saying.text_of(each.get("content"))
            for each in _history(document)
            if each.get("role") == "user" and not each.get("is_demo")
        ),
        None,
    )
    yield told.event("turn.started", saying.started(task), key="turn", rank=STARTED, turn=TURN)
    if task is not None:
        yield told.event("message.recorded", saying.message("user", task), key="task", rank=2, turn=TURN)
    calls = 0
    asked = _asked(document)
    for place, step in enumerate(_steps(document)):
        wanted = next(asked, {})
        if text(step.get("response")) is None and text(step.get("action")) is None:
            notes.traits["step_without_response"] += 1
            continue
        calls += 1
        yield from _step(told, place, step, wanted, model)
    if first is None:
        for place, each in enumerate(asked):
            calls += 1
            yield from _step(
                told, place, {"response": each.get("content"), "action": each.get("action")}, each, model
            )
    yield from _stats(told, mapping(info.get("model_stats")), calls, model, notes)
    yield from _settled(told, text(info.get("exit_status")), text(info.get("submission")))


def _steps(document: Document) -> Iterator[dict[str, Any]]:
    return each_object(document.items("trajectory"))


def _history(document: Document) -> Iterator[dict[str, Any]]:
    return each_object(document.items("history"))


def _asked(document: Document) -> Iterator[dict[str, Any]]:
    """The model's answers in the history: step for step those of the trajectory."""
    return (
        each
        for each in _history(document)
        if each.get("role") == "assistant" and each.get("is_demo") is not True
    )


def _step(
    told: Told, place: int, step: Mapping[str, Any], asked: Mapping[str, Any], model: str | None
) -> Iterator[Envelope]:
    """One answer of the model, what it asked for, and what came of it. Nothing has a time or an id; keys keep the order."""
    call, key = f"step-{place}", f"{place:06}"
    done = known({"model": model, "token_convention": "inclusive"})
    yield told.event("model_call.completed", done, key=f"{key}:1", call=call, turn=TURN)
    said = text(step.get("thought")) or text(step.get("response"))
    if said is not None:
        yield told.event(
            "message.recorded", saying.message("assistant", said), key=f"{key}:2", call=call, turn=TURN
        )
    action = text(step.get("action"))
    if action is None:
        return
    wanted = mapping(next(iter(objects(asked.get("tool_calls"))), None))
    function = mapping(wanted.get("function"))
    name = text(function.get("name")) or action.split(None, 1)[0]
    arguments = parsed(function.get("arguments")) if function else {"command": action}
    tool = identifier(wanted.get("id")) or identified(TURN, place)
    request = saying.requested(name, arguments)
    yield told.event("tool_call.requested", request, key=f"{key}:3", call=call, tool=tool, turn=TURN)
    if "observation" in step:
        seconds = step.get("execution_time")
        duration = (
            seconds * 1000 if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else None
        )
        result = saying.completed(False, text(step.get("observation")), duration_ms=duration, name=name)
        yield told.event("tool_call.completed", result, key=f"{key}:4", tool=tool, turn=TURN)


def _stats(
    told: Told, stats: Mapping[str, Any], steps: int, model: str | None, notes: Notes
) -> Iterator[Envelope]:
    """The sums of the run, the only figures there are. Zeros beside steps are a replay: unknown."""
    sent, received = count(stats.get("tokens_sent")), count(stats.get("tokens_received"))
    requests = count(stats.get("api_calls"))
    if requests is not None and requests > steps:
        notes.traits["requests_without_a_step"] += requests - steps
    if not sent and not received:
        notes.untold["model_stats without figures"] += 1
        return
    report = known(
        {
            "counter_kind": "cumulative",
            "usage_stream": "run",
            "usage": known({"input": sent, "output": received}),
            "token_convention": "inclusive",
            "source": "event",
            "start_known": True,
            "model": model,
            "reported_cost_usd": money(stats.get("instance_cost")) or money(stats.get("total_cost")),
        }
    )
    # Without times, keys are the order: a growing copy's later sums come behind its earlier ones.
    key = f"stats:{sent or 0:020}:{received or 0:020}"
    yield told.event("usage.reported", report, key=key, rank=6, turn=TURN)


def _settled(told: Told, status: str | None, submission: str | None) -> Iterator[Envelope]:
    if status is None:
        return
    limit = next((name for word, name in LIMITS.items() if word in status), None)
    if limit is not None:
        yield told.event("limit.reached", {"limit": limit}, key="limit", rank=7, turn=TURN)
    failed = limit is not None or any(word in status for word in FAILED) or "Error" in status
    if submission is not None and submission.strip() and not failed:
        yield told.event(
            "answer.finalized", saying.answer(submission), key="answer", rank=ANSWERED, turn=TURN
        )
    ended = saying.ended("failed" if failed else "completed", status if failed else None)
    yield told.event("turn.completed", ended, key="end", rank=ENDED, turn=TURN)


def _mini(document: Document, source: Source, notes: Notes) -> Iterator[Envelope]:
    """mini-swe-agent keeps the provider's own response with each message, and so each call's own usage."""
    top = mapping(document.top)
    info = mapping(top.get("info"))
    config = mapping(info.get("config"))
    first = next(
        (each for each in each_object(document.items("messages")) if each.get("role") == "assistant"), {}
    )
    instance = identifier(top.get("instance_id")) or identifier(info.get("instance_id"))
    model = identifier(mapping(config.get("model")).get("model_name"), 256)
    told = Told(
        PRODUCER,
        OUTPUT_VERSION,
        _session(
            source, instance, [first.get("content"), mapping(first.get("extra")).get("timestamp"), model]
        ),
    )
    yield from told.declared()
    facts = known(
        {
            "agent": "mini-swe-agent",
            "agent_version": identifier(info.get("mini_version"), 128),
            "model": model,
        }
    )
    yield told.event("session.started", facts, key="session", rank=STARTED)
    opened = False
    tools: list[str] = []
    for place, message in enumerate(each_object(document.items("messages"))):
        extra, role = mapping(message.get("extra")), message.get("role")
        at, key = moment_of(extra.get("timestamp"), notes), f"{place:06}"
        said = saying.text_of(message.get("content"))
        if role == "user" and not opened:
            opened = True
            yield told.event("turn.started", saying.started(said), key="turn", rank=STARTED, at=at, turn=TURN)
            yield told.event(
                "message.recorded", saying.message("user", said), key="task", rank=2, at=at, turn=TURN
            )
        elif role == "assistant":
            yield from _mini_call(told, key, at, said, mapping(extra.get("response")), extra, model)
            tools = [f"run:{place}:{number}" for number, _ in enumerate(objects(extra.get("actions")))]
            for tool, action in zip(tools, objects(extra.get("actions")), strict=True):
                request = saying.requested("bash", {"command": action.get("command")})
                yield told.event(
                    "tool_call.requested",
                    request,
                    key=f"{key}:{tool}",
                    at=at,
                    call=f"message-{place}",
                    tool=tool,
                    turn=TURN,
                )
        elif role in ("user", "tool") and tools and "returncode" in extra:
            code = extra.get("returncode")
            failed = type(code) is int and code != 0
            tool = tools.pop(0)
            result = saying.completed(failed, said, name="bash")
            yield told.event("tool_call.completed", result, key=key, rank=6, at=at, tool=tool, turn=TURN)
        else:
            notes.untold[f"message/{role if isinstance(role, str) else '?'}"] += 1
    yield from _settled(told, text(info.get("exit_status")), text(info.get("submission")))


def _mini_call(
    told: Told,
    key: str,
    at: str | None,
    said: str | None,
    response: Mapping[str, Any],
    extra: Mapping[str, Any],
    model: str | None,
) -> Iterator[Envelope]:
    given = mapping(response.get("usage"))
    details = mapping(given.get("prompt_tokens_details"))
    exclusive = "input_tokens" in given
    usage = known(
        {
            "input": count(given.get("input_tokens" if exclusive else "prompt_tokens")),
            "output": count(given.get("output_tokens" if exclusive else "completion_tokens")),
            "cache_read": count(
                given.get("cache_read_input_tokens") if exclusive else details.get("cached_tokens")
            ),
            "cache_write": count(given.get("cache_creation_input_tokens")),
            "reasoning": count(mapping(given.get("completion_tokens_details")).get("reasoning_tokens")),
        }
    )
    done = known(
        {
            "model": identifier(response.get("model"), 256) or model,
            "message_id": identifier(response.get("id")),
            "token_convention": "exclusive" if exclusive else "inclusive",
            "usage": usage if any(usage.values()) else None,
            "reported_cost_usd": money(extra.get("cost")),
        }
    )
    call = f"message-{int(key)}"
    yield told.event("model_call.completed", done, key=f"{key}:1", at=at, call=call, turn=TURN)
    if said is not None:
        yield told.event(
            "message.recorded", saying.message("assistant", said), key=f"{key}:2", at=at, call=call, turn=TURN
        )


FORMAT = Format(
    name=PRODUCER,
    title="SWE-agent, mini-swe-agent",
    files="<run>/<instance>/<instance>.traj, mini-swe-agent <instance>.traj.json",
    versions="1.0 (real trajectory), 0.x and mini-swe-agent (described)",
    usage="SWE-agent: exact sums of the run, none per call, the cached part unknown; mini-swe-agent: exact, per call",
    cost="mini-swe-agent: reported, per call",
    latency="none; duration of commands",
    tools="requests and results; mini-swe-agent exit codes",
    turns="one a run; end by exit status",
    cannot="times (SWE-agent); requests repeated after a format error, except as a number; whether a command failed (SWE-agent)",
    document=read,
    is_document=is_document,
    hints=((b'"trajectory"', b'"observation"'), (b'"trajectory_format"', b"mini-swe-agent")),
)
