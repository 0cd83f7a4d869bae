"""Owns which turn a Claude Code record belongs to: prompt id, else parent chain, else the nearest prompt before it in time.

The order of lines plays no part: links are looked up by uuid, so shuffled lines, copies and rewritten files give the same turns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from turnledger.contract.times import instant
from turnledger.harness.facts import count, identifier, joined, mapping, moment

SYNTHETIC = "<synthetic>"
"""The model of lines that the harness wrote itself: never a call."""
INTERRUPT = "[Request interrupted by user"
OUTPUT_OF_COMMAND = ("<local-command-stdout>", "<local-command-stderr>", "<bash-stdout>", "<bash-stderr>")
NOT_TYPED = ("<local-command-caveat>", "Caveat: The messages below")
PUT_IN = (INTERRUPT, *OUTPUT_OF_COMMAND, *NOT_TYPED)


def content_of(record: dict[str, Any]) -> Any:
    """``message.content``: a text or a list of blocks."""
    message = record.get("message")
    return message.get("content") if isinstance(message, dict) else None


def blocks_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The content blocks; a plain text is one block of type ``text``."""
    content = content_of(record)
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def user_text(record: dict[str, Any]) -> str | None:
    """What the user typed; reminders that the harness put beside it are left out."""
    blocks = [block for block in blocks_of(record) if block.get("type") == "text"]
    typed = [block for block in blocks if not str(block.get("text")).startswith("<system-reminder>")]
    return joined(typed or blocks)


def is_interrupt(record: dict[str, Any]) -> bool:
    """The line that Claude Code writes when the user stops it."""
    return record.get("type") == "user" and _begins(content_of(record), (INTERRUPT,))


def is_command_output(record: dict[str, Any]) -> bool:
    """The output of a command that the harness ran itself: it ends what the command line began."""
    return record.get("type") == "user" and _begins(content_of(record), OUTPUT_OF_COMMAND)


def _begins(content: Any, words: tuple[str, ...]) -> bool:
    """Whether the text of a content begins with one of some words."""
    return (content if type(content) is str else joined(content) or "").startswith(words)


def is_typed(record: dict[str, Any]) -> bool:
    """A user line that a person (or, in a sub-agent, the calling agent) wrote, not a tool result and not what the harness put in."""
    if (
        record.get("type") != "user"
        or record.get("isMeta") is True
        or record.get("isCompactSummary") is True
        or record.get("isVisibleInTranscriptOnly") is True
    ):
        return False
    content = content_of(record)
    if type(content) is not str:
        blocks = blocks_of(record)
        if not blocks:
            return False
        for block in blocks:
            if block.get("type") == "tool_result":
                return False
    return not _begins(content, PUT_IN)


def is_sidechain(record: dict[str, Any]) -> bool:
    """A line of a sub-agent that stands in its parent's file without an agent id (1.x)."""
    return record.get("isSidechain") is True and agent_of(record) is None


def agent_of(record: dict[str, Any]) -> str | None:
    """The sub-agent that wrote the line."""
    return identifier(record["agentId"], 128) if "agentId" in record else None


def opens_turn(record: dict[str, Any]) -> str | None:
    """The id of the turn that this record opens: its prompt id, else its own uuid. A sub-agent's prompt opens none."""
    if not is_typed(record) or agent_of(record) is not None:
        return None
    if is_sidechain(record):
        return identifier(record.get("uuid")) if record.get("parentUuid") is None else None
    return identifier(record.get("promptId")) or identifier(record.get("uuid"))


class _Link(NamedTuple):
    parent: str | None
    turn: str | None
    ending: str | None
    """What the record says about how the turn went: ``completed`` for a model's answer, ``failed``, ``interrupted``."""
    attempt: int | None
    """Which attempt a ``system/api_error`` line says has failed."""
    aside: bool
    """A line that stands in the chain and is no step of the conversation."""


class Links:
    """The parent chains of one file."""

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self._links: dict[str, _Link] = {}
        self._agents: dict[str, str] = {}
        self._turns: dict[str, str | None] = {}
        self._prompted: list[tuple[int, str]] = []
        self.extend(records)

    def extend(self, records: Iterable[dict[str, Any]]) -> None:
        """Take in records; those that were taken in before may come again."""
        prompts = self._prompted
        self._turns = {uuid: turn for uuid, turn in self._turns.items() if turn is not None}
        for record in records:
            kind = record.get("type")
            if "agentId" in record or kind == "progress":
                self._meet(record)
            uuid = identifier(record.get("uuid"))
            if uuid is None:
                continue
            turn = opens_turn(record) if kind == "user" else None
            parent = identifier(record.get("parentUuid")) or identifier(record.get("logicalParentUuid"))
            failed = kind == "system" and record.get("subtype") == "api_error"
            self._links[uuid] = _Link(
                parent,
                turn,
                _ending(record) if kind in ("assistant", "user") else None,
                count(record.get("retryAttempt")) if failed else None,
                kind in ("progress", "attachment"),
            )
            if turn is not None and not is_sidechain(record):
                at = moment(record.get("timestamp"))
                if at is not None:
                    prompts.append((instant(at) or 0, turn))
        prompts.sort()
        self._prompt_times = [at for at, _turn in prompts]
        self._prompts = [turn for _at, turn in prompts]

    def turn_of(self, record: dict[str, Any]) -> str | None:
        """The turn of a main or side chain record; None where neither its links nor its time lead to a prompt of this file."""
        own = opens_turn(record) if record.get("type") == "user" else None
        if own is not None:
            return own
        if not is_sidechain(record):
            prompt = identifier(record.get("promptId"))
            if prompt is not None:
                return prompt
        parent = identifier(record.get("parentUuid")) or identifier(record.get("logicalParentUuid"))
        turn = self._chain(parent) if parent is not None else None
        if turn is None and not is_sidechain(record):
            turn = self._nearest(moment(record.get("timestamp")))
        return turn

    def status_of(self, record: dict[str, Any]) -> str:
        """How the turn went that this record ends, by the nearest answer, failure or interrupt up its chain."""
        for link in self._above(record):
            if link.ending is not None:
                return link.ending
            if link.turn is not None:
                break
        return "completed"

    def attempts_before(self, record: dict[str, Any]) -> int | None:
        """How often the call of this assistant line had failed before, by the ``api_error`` lines directly above it."""
        link = self._links.get(identifier(record.get("parentUuid")) or "")
        if link is not None and not link.aside:  # as it is but where something stands between
            return link.attempt
        for link in self._above(record):
            if not link.aside:
                return link.attempt
        return None

    def first_seen(self, agent: str) -> str | None:
        """The earliest time of a line of this file that is, or holds, one of the sub-agent."""
        return self._agents.get(agent)

    def _meet(self, record: dict[str, Any]) -> None:
        agent = agent_of(record) or identifier(mapping(record.get("data")).get("agentId"), 128)
        at = moment(record.get("timestamp"))
        if agent is not None and at is not None:
            self._agents[agent] = min(
                self._agents.get(agent, at), at, key=lambda each: (instant(each) or 0, each)
            )

    def _above(self, record: dict[str, Any]) -> Iterator[_Link]:
        uuid = identifier(record.get("parentUuid"))
        seen: set[str] = set()
        while uuid is not None and uuid in self._links and uuid not in seen:
            seen.add(uuid)
            yield self._links[uuid]
            uuid = self._links[uuid].parent

    def _chain(self, uuid: str) -> str | None:
        walked: list[str] = []
        turn: str | None = None
        seen: set[str] = set()
        at: str | None = uuid
        while at is not None and at not in seen:
            if at in self._turns:
                turn = self._turns[at]
                break
            link = self._links.get(at)
            if link is None:
                break
            if link.turn is not None:
                turn = link.turn
                break
            seen.add(at)
            walked.append(at)
            at = link.parent
        for each in walked:
            self._turns[each] = turn
        return turn

    def _nearest(self, at: str | None) -> str | None:
        when = instant(at) if at is not None else None
        if when is None:
            return None
        place = bisect_right(self._prompt_times, when)
        return self._prompts[place - 1] if place else None


def _ending(record: dict[str, Any]) -> str | None:
    if record.get("type") == "assistant":
        return "failed" if record.get("isApiErrorMessage") is True else "completed"
    return "interrupted" if is_interrupt(record) else None
