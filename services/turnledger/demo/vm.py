"""One VM of the demo's fleet: its clock, its numbered streams, and the small acts that every harness knows (calls, tools, traffic)."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any


class Vm:
    """A session that writes events at its own clock.

    ``events`` are (seconds from the start, envelope), in the order of their writing. ``now`` moves with what is done; side work
    (a tool that runs beside others) is written with ``at`` and does not move it.
    """

    def __init__(self, session_id: str, rng: random.Random, start: datetime, seconds: float) -> None:
        self.session_id, self.rng, self._start, self.seconds = session_id, rng, start, seconds
        self.now = rng.uniform(0.0, 1.0)
        self.events: list[tuple[float, dict[str, Any]]] = []
        self._next: defaultdict[str, int] = defaultdict(int)
        self._calls = 0
        self._ids = 0
        self._last: defaultdict[str, float] = defaultdict(float)

    @property
    def over(self) -> bool:
        """Whether there is no time for another turn."""
        return self.now > self.seconds - 4

    def write(
        self,
        type_: str,
        payload: dict[str, Any] | None = None,
        *,
        stream: str = "ledger",
        at: float | None = None,
        **ids: Any,
    ) -> dict[str, Any]:
        """One event at ``at`` (seconds; now when absent). ``ids`` are envelope fields; a ``receipt_key`` among them is its identity."""
        # A stream is written in the order of its numbers: its clock never goes back.
        after = self._last[stream] = max(
            self._last[stream], min(self.now if at is None else at, self.seconds)
        )
        event: dict[str, Any] = {"session_id": self.session_id, "stream": stream, "type": type_}
        if "receipt_key" not in ids:
            event["seq"] = self._next[stream]
            self._next[stream] += 1
        event["occurred_at"] = (self._start + timedelta(seconds=after)).isoformat(timespec="microseconds")
        event |= {name: value for name, value in ids.items() if value is not None}
        event["payload"] = payload or {}
        self.events.append((after, event))
        return event

    def wait(self, low: float, high: float) -> float:
        """Let time pass; how long, in seconds."""
        took = self.rng.uniform(low, high)
        self.now += took
        return took

    def call_id(self) -> str:
        """The id of the session's next model call."""
        self._calls += 1
        return f"call-{self._calls}"

    def hex(self, digits: int = 12) -> str:
        """The session's next id. It follows from the session's own id: two runs of one seed do the same work, but a provider never gives
        two calls the same message id, and the ledger would take such calls for copies of one (contract 8)."""
        self._ids += 1
        return hashlib.sha256(f"{self.session_id}/{self._ids}".encode()).hexdigest()[:digits]

    def word(self, *words: str) -> str:
        """One of them."""
        return self.rng.choice(words)


def ms(seconds: float) -> int:
    """Milliseconds, as payloads carry them."""
    return round(seconds * 1000)


def exclusive_usage(vm: Vm, context: int) -> dict[str, int]:
    """What a provider reports whose input excludes the cache: most of a growing context is read from it."""
    fresh = vm.rng.randint(300, 1_500)
    return {
        "input": fresh,
        "cache_read": context,
        "cache_write_5m": vm.rng.randint(0, 800),
        "output": vm.rng.randint(60, 900),
    }


def inclusive_usage(vm: Vm, context: int) -> dict[str, int]:
    """What a provider reports whose input holds the cached part."""
    output = vm.rng.randint(80, 900)
    return {
        "input": context + vm.rng.randint(300, 1_500),
        "cache_read": context,
        "output": output,
        "reasoning": vm.rng.randint(0, output // 2),
    }


def traffic(
    vm: Vm, domain: str, *, decision: str = "allowed", at: float | None = None, path: str = "/v1/messages"
) -> None:
    """A request that left the VM, and the look-up of its name."""
    name: dict[str, Any] = {"stream": "recorder", "at": at}
    vm.write(
        "dns.queried", {"qname": domain, "qtype": "A", "rcode": "NOERROR", "decision": "allowed"}, **name
    )
    payload: dict[str, Any] = {
        "domain": domain,
        "port": 443,
        "decision": decision,
        "method": "POST",
        "path": path,
    }
    if decision == "allowed":
        payload |= {
            "status_code": 200,
            "bytes_sent": vm.rng.randint(900, 40_000),
            "bytes_received": vm.rng.randint(400, 9_000),
            "duration_ms": vm.rng.randint(90, 2_500),
        }
    else:
        payload |= {"matched_rule": "egress-allowlist"}
    vm.write("net.requested", payload, event_id=vm.hex(), **name)


def command(vm: Vm, line: str, *, at: float, took: float, exit_code: int = 0) -> None:
    """A process in the VM: start, audit, files that it touched, exit."""
    exec_id = vm.hex(8)
    recorder: dict[str, Any] = {"stream": "recorder"}
    vm.write("process.started", {"exec_id": exec_id, "command": line, "source": "tool"}, at=at, **recorder)
    program = line.split()[0]
    for offset in range(vm.rng.randint(1, 3)):
        vm.write(
            "process.audited",
            {
                "pid": vm.rng.randint(200, 9_000),
                "ppid": 1,
                "uid": 1000,
                "exe": f"/usr/bin/{program}",
                "argv": line,
            },
            at=at + 0.01 * offset,
            **recorder,
        )
    for _ in range(vm.rng.randint(0, 3)):
        path = f"/workspace/{vm.word('src', 'tests', 'docs')}/{vm.word('main', 'parser', 'store', 'api')}.py"
        vm.write(
            "fs.changed",
            {
                "action": vm.word("modified", "created", "read"),
                "path": path,
                "size": vm.rng.randint(90, 9_000),
            },
            at=at + took / 2,
            **recorder,
        )
    vm.write(
        "process.exited",
        {"exec_id": exec_id, "exit_code": exit_code, "duration_ms": ms(took)},
        at=at + took,
        **recorder,
    )
