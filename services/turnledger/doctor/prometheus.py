"""Asks a Prometheus server what a session's counters said: the last sample of each series within a window, summed over series. Changes nothing.

An answer without a sample is None: no data, which is not 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from turnledger.errors import TurnledgerError

WINDOW_HOURS = 72
"""A finished session exports no more: without a window an instant query finds nothing."""
TIMEOUT_SECONDS = 20.0
GREATEST_ANSWER = 32 * 1024 * 1024
"""Bytes of an answer that are read."""
PRECISION_SECONDS = 5
SESSION_LABEL = "session_id"


class PrometheusAway(TurnledgerError):
    """The server does not answer, or not as a Prometheus server does."""


@dataclass(frozen=True)
class Metric:
    """One counter that harnesses export."""

    name: str
    """As Prometheus has it."""
    original: str
    """Its OpenTelemetry name."""
    by: tuple[str, ...] = ()
    """Labels of its breakdown; without any there is none."""


METRICS = (
    Metric("tool_calls_total", "tool.calls", ("job", "profile", "tool_name")),
    Metric("tool_errors_total", "tool.errors", ("job", "profile", "tool_name")),
    Metric("guard_blocks_total", "guard.blocks", ("job", "profile", "tool_name", "guard_reason")),
    Metric("guard_coercions_total", "guard.coercions"),
    Metric(
        "llm_requests_total", "llm.requests", ("job", "profile", "llm_interface", "model_id", "server_host")
    ),
    Metric("llm_failures_total", "llm.failures"),
)
"""Six sums and four breakdowns: ten queries."""


def normalised(label: str) -> str:
    """A label's name as Prometheus spells it: ``guard.reason`` and ``guard_reason`` are one."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", label)
    return f"_{name}" if name[:1].isdigit() else name


@dataclass(frozen=True)
class Series:
    """One line of a breakdown: its labels, names normalised, and its value."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Told:
    """What the server says of one metric of one session."""

    metric: Metric
    value: float | None
    """The sum over its series. None: no data."""
    series: tuple[Series, ...] = ()
    """Its breakdown, where it has one."""


class Prometheus:
    """One server, by its address. ``at`` is the moment of all queries, in seconds since 1970; the server's now where it is None."""

    def __init__(
        self,
        url: str,
        *,
        at: float | None = None,
        label: str = SESSION_LABEL,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """Raises :class:`PrometheusAway` for an address that is none."""
        try:
            parts = urlsplit(url)
            whole = parts.scheme in ("http", "https") and bool(parts.hostname)
            port = parts.port
        except ValueError:
            whole = False
        if not whole:
            raise PrometheusAway(
                "the address of the Prometheus server is not one: give http://host:port, or https://…"
            )
        self.place = (
            f"{parts.scheme}://{parts.hostname}" + (f":{port}" if port else "") + parts.path.rstrip("/")
        )
        """The address without a password."""
        self._base = url.split("?", 1)[0].rstrip("/")
        self._headers = {"Accept": "application/json"}
        if parts.username is not None:
            import base64
            from urllib.parse import unquote

            secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(secret).decode()}"
            self._base = self._base.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1)
        self._at = at
        self._label = normalised(label)
        self._timeout = timeout
        self._opener = build_opener(_NoRedirect)

    def session(self, session_id: str) -> list[Told]:
        """The ten queries: what each metric says of a session."""
        told = []
        for metric in METRICS:
            ours = f"last_over_time({self._selector(metric, session_id)}[{WINDOW_HOURS}h])"
            value = _only(self.query(f"sum({ours})"))
            series: tuple[Series, ...] = ()
            if metric.by:
                by = ", ".join(metric.by)
                found = self.query(f"sum by ({by}) ({ours})")
                series = tuple(sorted(found, key=lambda one: sorted(one.labels.items())))
            told.append(Told(metric, value, series))
        return told

    def breakdown(self, metric: Metric, session_id: str, labels: Iterable[str]) -> list[Series]:
        """One metric of a session by labels of one's own, in either spelling."""
        by = ", ".join(normalised(label) for label in labels)
        ours = f"last_over_time({self._selector(metric, session_id)}[{WINDOW_HOURS}h])"
        return self.query(f"sum by ({by}) ({ours})")

    # --- evidence for what differs ---

    def resets(self, metric: Metric, session_id: str) -> int | None:
        """How often a counter of the session fell within the window: a process began it anew."""
        found = _only(self.query(f"sum(resets({self._selector(metric, session_id)}[{WINDOW_HOURS}h]))"))
        return None if found is None else int(found)

    def last_sample(self, metric: Metric, session_id: str) -> float | None:
        """When the session's latest sample was taken, in seconds since 1970, to :data:`PRECISION_SECONDS`; None without any in the window.

        Found by halving the window: a subquery would miss a series that lived for less than its step, all raw samples are too many.
        """
        selector = self._selector(metric, session_id)
        now = self._at if self._at is not None else _only(self.query("vector(time())"))
        if now is None:
            return None

        def within(seconds: int) -> bool:
            return bool(self.query(f"count(last_over_time({selector}[{seconds}s]))", at=now))

        younger, older = 0, WINDOW_HOURS * 3600
        if not within(older):
            return None
        while older - younger > PRECISION_SECONDS:
            middle = (younger + older) // 2
            if within(middle):
                older = middle
            else:
                younger = middle
        return now - older

    def without_session(self, metric: Metric) -> int:
        """How many series of the metric carry no session at all."""
        selector = f'{metric.name}{{{self._label}=""}}'
        return int(_only(self.query(f"count(last_over_time({selector}[{WINDOW_HOURS}h]))")) or 0)

    def sessions(self, metric: Metric) -> int:
        """How many sessions have series of the metric."""
        selector = f'{metric.name}{{{self._label}!=""}}'
        within = f"last_over_time({selector}[{WINDOW_HOURS}h])"
        return int(_only(self.query(f"count(count by ({self._label}) ({within}))")) or 0)

    def _selector(self, metric: Metric, session_id: str) -> str:
        # PromQL takes JSON's escapes.
        return f"{metric.name}{{{self._label}={json.dumps(session_id, ensure_ascii=False)}}}"

    def query(self, promql: str, *, at: float | None = None) -> list[Series]:
        """An instant query's vector, as of ``at`` or the moment of all. Raises :class:`PrometheusAway`."""
        at = self._at if at is None else at
        given = {"query": promql, "timeout": f"{self._timeout:.0f}s"}
        if at is not None:
            given["time"] = f"{at:.3f}"
        request = Request(f"{self._base}/api/v1/query", data=urlencode(given).encode(), headers=self._headers)
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                body = answer.read(GREATEST_ANSWER + 1)
        except HTTPError as error:
            raise PrometheusAway(self._refusal(error)) from None
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise PrometheusAway(
                f"the Prometheus server at {self.place} does not answer ({reason}): start it, or give another address with --prometheus."
            ) from None
        if len(body) > GREATEST_ANSWER:
            raise PrometheusAway(
                f"the Prometheus server at {self.place} answers a query with more than {GREATEST_ANSWER // 2**20} MiB: narrow what it stores."
            )
        return self._vector(body)

    def _refusal(self, error: HTTPError) -> str:
        try:
            said = json.loads(error.read(65536)).get("error")
        except (ValueError, AttributeError, OSError):
            said = None
        return (
            f"the Prometheus server at {self.place} refuses a query with {error.code}"
            f"{f' ({said})' if isinstance(said, str) else ''}: give the address whose /api/v1/query answers."
        )

    def _vector(self, body: bytes) -> list[Series]:
        try:
            answer = json.loads(body)
            if answer["status"] != "success" or answer["data"]["resultType"] != "vector":
                raise ValueError("no vector")
            found = [
                Series(
                    {
                        normalised(str(name)): str(value)
                        for name, value in one["metric"].items()
                        if name != "__name__"
                    },
                    float(one["value"][1]),
                )
                for one in answer["data"]["result"]
            ]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise PrometheusAway(
                f"what answers at {self.place} is no Prometheus server: give the address whose /api/v1/query answers."
            ) from None
        if not all(isfinite(one.value) for one in found):
            raise PrometheusAway(
                f"the Prometheus server at {self.place} has a sample that is no number (NaN or infinite) where a count belongs: look at what exports it."
            )
        return found


class _NoRedirect(HTTPRedirectHandler):
    """A password is sent to nobody but whom it was given for."""

    def redirect_request(self, *given: Any, **named: Any) -> None:
        return None


def _only(found: Sequence[Series]) -> float | None:
    return found[0].value if found else None
