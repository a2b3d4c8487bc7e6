"""The scanner finds planted secrets however they are written down, and never repeats them."""

import base64
import gzip
import json

import pytest

from test.kit.clusterwatch import planted_in
from test.kit.secretscan import SecretScan

SECRET = 'pass"word & <more>\\ä'


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_secret_is_found_plain_escaped_and_encoded() -> None:
    forms = [
        f"login with {SECRET} refused",
        json.dumps({"password": SECRET}),
        json.dumps({"password": SECRET}, ensure_ascii=False),
        repr({"password": SECRET}),
        '<password>pass"word &amp; &lt;more&gt;\\ä</password>',
        "p=pass%22word%20%26%20%3Cmore%3E%5C%C3%A4",
        *(
            base64.b64encode(before + SECRET.encode() + b"tail").decode()
            for before in (b"", b"a", b"ab")
        ),
        base64.urlsafe_b64encode(b"x" + SECRET.encode()).decode(),
        encoded(gzip.compress(f"#cloud-config\npassword: {SECRET}".encode())),
    ]
    for form in forms:
        scan = SecretScan([SECRET])
        scan.look("a log", form)
        assert scan.leaks, form
        assert SECRET not in scan.report()


def test_what_holds_no_secret_is_fine() -> None:
    scan = SecretScan([SECRET, "another-4711"])
    scan.look(
        "a log", f"{SECRET[:8]} another-4712 {base64.b64encode(gzip.compress(b'x' * 99)).decode()}"
    )
    scan.look("a log", "H4sIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
    assert scan.leaks == []


def test_each_line_of_a_secret_counts() -> None:
    scan = SecretScan(["first-line\n  second-line"])
    scan.look("an event", "it says second-line")
    assert len(scan.leaks) == 1


def test_a_short_secret_cannot_be_looked_for() -> None:
    with pytest.raises(ValueError, match="too short"):
        SecretScan(["short"])


KEY = """-----BEGIN RSA PRIVATE KEY-----
MIIEowIBAAKCAQEAfirst00000000000000000000000000000000000000000000
second0000000000000000000000000000000000000000000000000000000001
-----END RSA PRIVATE KEY-----
"""


def test_of_a_secret_what_lets_somebody_in_is_looked_for() -> None:
    data = {
        "username": "admin",
        "password": "planted-4711",
        "tls.key": KEY,
        "ca.crt": KEY.replace("RSA PRIVATE KEY", "CERTIFICATE"),
        "value": "#cloud-config\njoin: {token: abcdef.0123456789abcdef}\n",
        "token-secret": "simulated",
    }
    found = list(planted_in({"data": {name: encoded(it.encode()) for name, it in data.items()}}))
    assert found == ["planted-4711", KEY.splitlines()[2], "0123456789abcdef"]
