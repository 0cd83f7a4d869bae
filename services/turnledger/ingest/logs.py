"""How the long-running commands log: sentences to standard error, whatever a library wants to say as one line."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging() -> None:
    """Sentences to standard error. What libraries say is one line too: an outage is no reason for a traceback."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
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


class _OneLine(logging.Handler):
    """Hands a library's message to structlog as one line, without its traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().splitlines()
        said = message[0] if message else ""
        if record.exc_info and record.exc_info[1] is not None and str(record.exc_info[1]) not in said:
            said = f"{said}: {record.exc_info[1]!r}"
        structlog.get_logger(record.name).log(record.levelno, said, logger=record.name)
