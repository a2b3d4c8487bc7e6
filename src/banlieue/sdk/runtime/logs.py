"""Log output: JSON lines for machines, plain lines for terminals, one pass id on both.

Code logs through `logging.getLogger(__name__)` and hands facts over as `extra={...}`; the
formatters print them as fields. Secrets never reach a log because they live in types that mask
themselves; values of such types are replaced even where something would render them.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import IO, Any, Literal

from pydantic import BaseModel, SecretBytes, SecretStr

from banlieue.sdk.runtime import passes

Format = Literal["json", "text"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SHORT_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_MASK = "[withheld]"
_QUIET = {
    # The source reports lost and regained watches once each; kopf repeats every attempt.
    "kopf._cogs.clients": logging.CRITICAL,
    "kopf._core.reactor.observation": logging.CRITICAL,
    # It runs outside the main thread on purpose and says so with a warning each time.
    "kopf._core.reactor.running": logging.ERROR,
    "kopf.objects": logging.ERROR,
    "kopf.activities": logging.ERROR,
    "kopf": logging.WARNING,
    "aiohttp.access": logging.WARNING,
    "aiohttp": logging.WARNING,
    "asyncio": logging.WARNING,
    "kubernetes": logging.WARNING,
    "client": logging.WARNING,
}


class SecretGuard(logging.Filter):
    """Masks secret values handed to a logger, before any formatter sees them."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask arguments and extra fields in place; lets every record through."""
        if isinstance(record.args, tuple):
            record.args = tuple(_masked(arg) for arg in record.args)
        elif record.args:
            record.args = {key: _masked(value) for key, value in record.args.items()}
        record.msg = _masked(record.msg)
        for key in record.__dict__.keys() - _STANDARD:
            record.__dict__[key] = _masked(record.__dict__[key])
        return True


class PassFields(logging.Filter):
    """Adds controller, namespace, name and pass id of the current pass to each record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add what is known; explicit fields of the record win."""
        run = passes.current()
        if run is not None:
            fields = {
                "controller": run.controller,
                "object_namespace": run.key.namespace,
                "object_name": run.key.name,
                "pass_id": run.id,
            }
            for key, value in fields.items():
                record.__dict__.setdefault(key, value)
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the record."""
        line: dict[str, Any] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(_fields(record))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, ensure_ascii=False, default=str, separators=(",", ":"))


class TextFormatter(logging.Formatter):
    """A line for people: time, level, message, then the fields as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the record."""
        fields = " ".join(f"{key}={value}" for key, value in _fields(record).items())
        level = _SHORT_LEVELS.get(record.levelname, record.levelname)
        text = f"{_timestamp(record)} {level:<5} {record.getMessage()}"
        if fields:
            text = f"{text}  {fields}"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return text


def configure(
    *, log_format: Format = "json", level: str = "info", stream: IO[str] | None = None
) -> logging.Handler:
    """Send all logs to `stream` (standard error by default); returns the handler.

    Called once by the command, never on import. `level` is a name as logging knows it.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(PassFields())
    handler.addFilter(SecretGuard())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)
    return handler


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _masked(value: Any) -> Any:  # noqa: ANN401 - log arguments may be anything
    if isinstance(value, SecretStr | SecretBytes):
        return _MASK
    if isinstance(value, BaseModel):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _masked(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(item) for item in value]
    return value
