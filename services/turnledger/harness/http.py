"""Owns how rows leave for a collector over HTTP: the wire form of the client's side (docs/harness.md), its retries and its errors as sentences."""

from __future__ import annotations

import asyncio
import gzip
import random
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import orjson

from turnledger.errors import TurnledgerError
from turnledger.settings import Settings

if TYPE_CHECKING:
    import aiohttp  # a third of a second, which only those pay who have such a sink

PATH = "/v1/events"
ANSWER_SECONDS = 30.0
"""A collector answers when the broker has the events: as long as that may take, and then some."""
ATTEMPTS = 4
"""Of one batch, with the same bytes and the same key; then the sender's own pauses begin."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
"""Seconds between them, doubled each time; what the collector asks for (``Retry-After``) counts up to the longest."""
COMPRESS_FROM = 1024
AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Answers after which the same request may go."""
MOST_ANSWER = 1024 * 1024
"""Bytes of an answer that are read."""
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


class CollectorAway(TurnledgerError):
    """The collector does not answer, or refused the request. The events stay where they are."""


class _Row(Protocol):
    """What is needed of a row."""

    @property
    def record(self) -> bytes:
        """One envelope."""


class Refused(NamedTuple):
    """An event that the collector will never take: its place in the batch, and why."""

    place: int
    reason: str


@dataclass(frozen=True, slots=True)
class HttpSink:
    """A collector's address."""

    url: str

    @classmethod
    def parse(cls, text: str) -> HttpSink:
        """``https://host[:port][/path]``; ``http://`` on this machine alone. Raises :class:`CollectorAway` with the way out for anything else."""
        parts = urlsplit(text)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.username is not None or parts.password is not None:
            raise CollectorAway(
                f"the sink at {parts.hostname} has a password in its address, which ends up in logs: set TURNLEDGER_COLLECTOR_TOKEN instead"
            )
        if (
            parts.scheme not in ("https", "http")
            or not parts.hostname
            or port == -1
            or parts.query
            or parts.fragment
        ):
            raise CollectorAway(
                f"the sink {text!r} is no address of a collector: it looks like https://host or https://host:port/path"
            )
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise CollectorAway(
                f"the sink {text!r} would send events in the clear: write https://, or send to a collector on this machine"
            )
        return cls(f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or PATH}")

    def __str__(self) -> str:
        return self.url


class Collector:
    """A connection to a collector, for one loop. ``token``: what it knows us by."""

    def __init__(self, sink: HttpSink, token: str | None) -> None:
        self._sink, self._token = sink, token
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def of_settings(cls, sink: HttpSink) -> Collector:
        """With the token of the environment."""
        secret = Settings().collector_token
        return cls(sink, secret.get_secret_value() if secret is not None else None)

    async def open(self) -> None:
        """Make ready; the connection itself comes with the first request."""
        import aiohttp

        # Of this moment, where aiohttp's own is of the moment at which it was imported: an authority may be named meanwhile.
        trust = ssl.create_default_context() if self._sink.url.startswith("https:") else True
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS), connector=aiohttp.TCPConnector(ssl=trust)
        )

    async def close(self) -> None:
        """Let go of the connection."""
        if self._session is not None:
            await self._session.close()

    async def send(self, rows: Sequence[_Row]) -> list[Refused]:
        """Return when the collector has all rows, or will never take them: those. Raises :class:`CollectorAway`.

        A request that is too long for the collector is halved; a single event that is has been refused.
        """
        try:
            return await self._post(rows)
        except _TooLong:
            if len(rows) == 1:
                return [Refused(0, "too_large")]
        half = len(rows) // 2
        first = await self.send(rows[:half])
        return first + [each._replace(place=each.place + half) for each in await self.send(rows[half:])]

    async def _post(self, rows: Sequence[_Row]) -> list[Refused]:
        import aiohttp

        body = b"".join(row.record + b"\n" for row in rows)
        headers = {
            "Content-Type": "application/x-ndjson",
            "Accept": "application/json",
            "User-Agent": "turnledger",
            "Idempotency-Key": f'"{sha256(body).hexdigest()}"',
            "Turnledger-Events": str(len(rows)),
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if len(body) >= COMPRESS_FROM:
            body = gzip.compress(body, compresslevel=3, mtime=0)
            headers["Content-Encoding"] = "gzip"
        pause = FIRST_PAUSE
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            try:
                status, answer, after = await self._ask(body, headers)
            except aiohttp.ClientConnectorCertificateError as error:
                raise CollectorAway(
                    f"the certificate of {self._sink} is not accepted ({_verdict(error.certificate_error)}): renew it there, correct the address, or "
                    "name the authority that signed it in SSL_CERT_FILE"
                ) from None
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if last:
                    raise CollectorAway(
                        f"{self._sink} does not answer ({_reason(error)}): start it, or correct the address"
                    ) from None
                after = None
            else:
                if status == 200:
                    return self._results(answer, len(rows))
                if status not in AGAIN or last:
                    raise self._no(status)
            # Not all at one moment, when a collector that serves many comes back.
            await asyncio.sleep(
                min(after if after is not None else pause * random.uniform(0.5, 1.5), LONGEST_PAUSE)
            )
            pause *= 2
        raise AssertionError("the last attempt returns or raises")

    async def _ask(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, float | None]:
        assert self._session is not None, "send() before open()"
        async with self._session.post(
            self._sink.url, data=body, headers=headers, allow_redirects=False
        ) as answer:
            said = await answer.content.read(MOST_ANSWER)
            return answer.status, said, _seconds(answer.headers.get("Retry-After"))

    def _no(self, status: int) -> Exception:
        if status == 413:
            return _TooLong()
        if status in (401, 403):
            return CollectorAway(
                f"{self._sink} does not know this publisher ({status}): set TURNLEDGER_COLLECTOR_TOKEN to a token of its own"
            )
        if status in AGAIN:
            return CollectorAway(f"{self._sink} does not take events now ({status}): see to the collector")
        return CollectorAway(
            f"{self._sink} is no collector that takes events ({status}): correct the address"
        )

    def _results(self, answer: bytes, count: int) -> list[Refused]:
        """What became of each event, in their order."""
        try:
            results: Any = orjson.loads(answer)["results"]
            words = [(result["status"], str(result.get("reason", ""))) for result in results]
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            words = []
        if len(words) != count or any(status not in ("accepted", "refused") for status, _ in words):
            raise CollectorAway(
                f"{self._sink} did not say what became of each of {count} events: it is no collector of this version"
            )
        return [
            Refused(place, reason[:64]) for place, (status, reason) in enumerate(words) if status == "refused"
        ]


class _TooLong(Exception):
    """413."""


def _seconds(text: str | None) -> float | None:
    """``Retry-After`` in seconds; a date is not read."""
    return float(text) if text is not None and text.isdecimal() else None


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _verdict(error: Exception) -> str:
    return error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else _reason(error)
