import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, SecretBytes, SecretStr

from banlieue.sdk.kube import Key
from banlieue.sdk.runtime import logs, passes

PLANTED = "hunter2-planted"


class Login(BaseModel):
    user: str
    password: SecretStr


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """Configured logging, taken back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_json_lines_carry_level_message_and_fields(output: io.StringIO) -> None:
    logs.configure(stream=output)
    logging.getLogger("x").info("clone %s", "started", extra={"task": "task-7"})
    (line,) = lines(output)
    assert line["message"] == "clone started"
    assert line["level"] == "info"
    assert line["logger"] == "x"
    assert line["task"] == "task-7"
    assert line["time"].endswith("Z")


def test_lines_of_a_pass_share_its_id(output: io.StringIO) -> None:
    logs.configure(stream=output)
    token = passes.CURRENT.set(passes.Pass("machines", Key("ns", "vm"), "abc"))
    logging.getLogger("x").info("one")
    logging.getLogger("y").info("two")
    passes.CURRENT.reset(token)
    logging.getLogger("x").info("three")
    one, two, three = lines(output)
    assert one["pass_id"] == two["pass_id"] == "abc"
    assert (one["controller"], one["object_namespace"], one["object_name"]) == (
        "machines",
        "ns",
        "vm",
    )
    assert "pass_id" not in three


def test_exceptions_stay_on_one_line(output: io.StringIO) -> None:
    logs.configure(stream=output)
    try:
        int("bug")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = lines(output)
    assert "ValueError: invalid literal" in line["exception"]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_secrets_are_never_rendered(output: io.StringIO, log_format: logs.Format) -> None:
    logs.configure(log_format=log_format, level="debug", stream=output)
    secret, raw = SecretStr(PLANTED), SecretBytes(PLANTED.encode())
    login = Login(user="u", password=secret)
    log = logging.getLogger("x")
    log.info("value %s and %r", secret, raw)
    log.info("mapping %(a)s", {"a": secret})
    log.info("extra", extra={"a": secret, "b": {"c": [raw]}, "d": login})
    log.info("model %s", login)
    assert PLANTED not in output.getvalue()
    assert output.getvalue().count("\n") == 4


def test_text_is_for_people(output: io.StringIO) -> None:
    logs.configure(log_format="text", stream=output)
    logging.getLogger("x").warning("it waits", extra={"reason": "ImageNotFound"})
    assert "WARN  it waits  reason=ImageNotFound" in output.getvalue()


def test_chatty_libraries_are_tamed(output: io.StringIO) -> None:
    logs.configure(level="debug", stream=output)
    logging.getLogger("kopf.objects").info("Handler succeeded.")
    logging.getLogger("kopf._cogs.clients.watching").error("Request attempt failed")
    logging.getLogger("aiohttp.access").info("GET /")
    assert output.getvalue() == ""


def test_values_json_does_not_know_are_shown_all_the_same(output: io.StringIO) -> None:
    logs.configure(stream=output)
    logging.getLogger("x").info("odd", extra={"key": Key("ns", "a"), "where": sys})
    (line,) = lines(output)
    assert line["key"] == "ns/a"
