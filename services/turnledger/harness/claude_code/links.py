"""Owns which turn a Claude Code record belongs to: prompt id, else parent chain, else the nearest prompt before it in time.

The order of lines plays no part: links are looked up by uuid, so shuffled lines, copies and rewritten files give the same turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from turnledger.contract.times import instant
from turnledger.harness.chains import Chains
from turnledger.harness.facts import count, identifier, joined, listed, mapping, moment

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
        kinds = [block.get("type") for block in listed(content) if isinstance(block, dict)]
        if not kinds or "tool_result" in kinds:
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


COMPLETED, FAILED, INTERRUPTED = 1, 2, 3
"""What a record says about how the turn went: a model's answer, its failure, the user's interrupt."""
ENDING = 3
"""The bits of a tag that say it."""
ASIDE = 4
"""The tag of a line that stands in the chain and is no step of the conversation."""
STATUSES = {COMPLETED: "completed", FAILED: "failed", INTERRUPTED: "interrupted"}


class Links:
    """The parent chains of one file."""

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self._chains = Chains()
        self._agents: dict[str, str] = {}
        self._attempts: dict[int, int | None] = {}
        """Which attempt an ``api_error`` line says has failed, by its number in the chains."""
        self.extend(records)

    def extend(self, records: Iterable[dict[str, Any]]) -> None:
        """Take in records; those that were taken in before may come again."""
        for record in records:
            kind = record.get("type")
            if "agentId" in record or kind == "progress":
                self._meet(record)
            uuid = identifier(record.get("uuid"))
            if uuid is None:
                continue
            turn, at, tag = None, None, 0
            if kind == "assistant":
                tag = FAILED if record.get("isApiErrorMessage") is True else COMPLETED
            elif kind == "user":
                turn = opens_turn(record)
                if turn is None:
                    tag = INTERRUPTED if is_interrupt(record) else 0
                elif not is_sidechain(record):
                    at = moment(record.get("timestamp"))
            elif kind in ("progress", "attachment"):
                tag = ASIDE
            number = self._chains.add(uuid, _parent(record), turn=turn, at=at, tag=tag)
            if kind == "system" and record.get("subtype") == "api_error":
                self._attempts[number] = count(record.get("retryAttempt"))
            elif number in self._attempts:
                del self._attempts[number]

    def turn_of(self, record: dict[str, Any]) -> str | None:
        """The turn of a main or side chain record; None where neither its links nor its time lead to a prompt of this file."""
        sidechain = is_sidechain(record)
        turn = identifier(record["promptId"]) if "promptId" in record and not sidechain else None
        if turn is None and record.get("type") == "user":
            turn = opens_turn(record)
        if turn is not None:
            return turn
        parent = _parent(record)
        turn = self._chains.linked(parent) if parent is not None else None
        if turn is None and not sidechain:
            turn = self._chains.nearest(moment(record.get("timestamp")))
        return turn

    def status_of(self, record: dict[str, Any]) -> str:
        """How the turn went that this record ends, by the nearest answer, failure or interrupt up its chain."""
        for number in self._above(record):
            ending = self._chains.tags[number] & ENDING
            if ending:
                return STATUSES[ending]
        return "completed"

    def attempts_before(self, record: dict[str, Any]) -> int | None:
        """How often the call of this assistant line had failed before, by the ``api_error`` lines directly above it."""
        if not self._attempts:
            return None
        for number in self._above(record):
            if self._chains.tags[number] != ASIDE:
                return self._attempts.get(number)
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

    def _above(self, record: dict[str, Any]) -> Iterator[int]:
        parent = identifier(record.get("parentUuid"))
        return self._chains.above(parent) if parent is not None else iter(())


def _parent(record: dict[str, Any]) -> str | None:
    return identifier(record.get("parentUuid")) or identifier(record.get("logicalParentUuid"))
