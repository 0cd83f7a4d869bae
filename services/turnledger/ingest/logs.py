"""How the long-running commands log: sentences to standard error, whatever a library wants to say as one line."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from turnledger.contract.shapes import hide


def configure_logging(process: int | None = None) -> None:
    """Sentences to standard error. What libraries say is one line too: an outage is no reason for a traceback. ``process``: which of several
    that write to one log this is."""
    named: list[structlog.typing.Processor] = [] if process is None else [_Named(process)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *named,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            without_secrets,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # One write a line: several processes share what standard error is.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [_OneLine()]
    root.setLevel(logging.WARNING)
    logging.getLogger("turnledger").setLevel(logging.INFO)
    # Faust and mode warn about what is as it should be here (no tables, no web server).
    # (mode logs under the module in which a class stands.)
    for name in (
        "faust",
        "mode",
        "aiokafka",
        "kafka",
        "turnledger.ingest.app",
        "turnledger.ingest.transport",
    ):
        logging.getLogger(name).setLevel(logging.ERROR)


def warnings_only() -> None:
    """For a command that a person watches: what does not go as it should, to standard error."""
    from turnledger.kafka import connect  # not for processes that only log

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            without_secrets,
            structlog.processors.KeyValueRenderer(key_order=["level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    connect.quiet()


class _Named:
    """Says in each line which process it is from."""

    def __init__(self, process: int) -> None:
        self.process = process

    def __call__(
        self, logger: Any, method: str, line: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        line["process"] = self.process
        return line


def without_secrets(logger: object, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """No secret by shape gets into a log (contract 14), whatever a library quotes. Lines are few: what it costs is nothing."""
    return {name: value if type(value) in _PLAIN else hide(str(value)) for name, value in line.items()}


_PLAIN = (int, float, bool, type(None))


class _OneLine(logging.Handler):
    """Hands a library's message to structlog as one line, without its traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().splitlines()
        said = message[0] if message else ""
        if record.exc_info and record.exc_info[1] is not None and str(record.exc_info[1]) not in said:
            said = f"{said}: {record.exc_info[1]!r}"
        structlog.get_logger(record.name).log(record.levelno, said, logger=record.name)
