"""The log: one JSON object a line, with what a record's `fields` name beside its message."""

import logging
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

import orjson


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level, fields = record.levelname.lower(), getattr(record, "fields", {})
        line = _line(record.created, level, record.name, record.getMessage(), fields)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def say(source: str, says: str, fields: Mapping[str, Any]) -> None:
    """As `logging` would at the level of information, at a third of the cost: for each request."""
    line = _line(time.time(), "info", source, says, fields)
    output = sys.stdout.buffer
    output.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    output.flush()


@lru_cache(maxsize=1)
def _second(since_epoch: int) -> str:
    return f"{datetime.fromtimestamp(since_epoch, timezone.utc):%Y-%m-%dT%H:%M:%S}"


def _line(
    at_s: float, level: str, source: str, says: str, fields: Mapping[str, Any]
) -> dict[str, Any]:
    second = int(at_s)
    at = f"{_second(second)}.{int((at_s - second) * 1000):03d}+00:00"
    return {"at": at, "level": level, "from": source, "says": says, **fields}


def start_logging() -> None:
    # No line names a thread or a process, which every record would look up.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
