"""Logging: one event per line, as JSON or as readable text; also for the loggers of uvicorn and websockets."""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from typing import Any

import structlog

from tampu.server.settings import ServerSettings

REQUEST: ContextVar[str] = ContextVar("tampu_request")
"""The id of the request that the current task or thread works on."""


def _of_request(_logger: Any, _method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    id = REQUEST.get(None)
    if id is not None:
        event.setdefault("request_id", id)
    return event


def set_up(settings: ServerSettings) -> None:
    pretty = settings.log_format == "pretty" or (settings.log_format == "auto" and sys.stderr.isatty())
    shared: list[structlog.types.Processor] = [
        _of_request,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    rendering: list[structlog.types.Processor] = (
        # The default formatter prints the values of variables, which can be keys and payloads.
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if pretty
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    # At debug level uvicorn logs the headers and frames of every stream: keys and payloads again.
    for name, least in (("tampu", logging.DEBUG), ("uvicorn", logging.INFO), ("websockets", logging.INFO)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(max(level, least))
