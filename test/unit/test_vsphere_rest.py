"""The REST client: both dialects, trust, sessions that end, and nothing secret in any text."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from banlieue.api.reasons import Reason
from banlieue.api.v1alpha1.provider import Capabilities
from banlieue.providers.vsphere.client.rest import Rest, RestError
from banlieue.providers.vsphere.client.session import Session
from banlieue.providers.vsphere.client.tags import Tags, may_create
from banlieue.providers.vsphere.client.transport import Endpoint, Trust
from banlieue.providers.vsphere.places.references import References
from banlieue.sdk.driver import Connection
from banlieue.sdk.errors import DriverError, InvalidSpec, NeedsOperator, Transient, Unreachable
from test.kit.restserver import PASSWORD, Answer, RestServer, rest_server
from test.kit.waiting import wait_until

pytestmark = pytest.mark.slow

_CATEGORIES = {"urn:c:1": "team", "urn:c:2": "tier"}


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=[False, True], ids=["api", "rest"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RestServer]:
    with rest_server(tmp_path, old=request.param) as server:
        yield server


def _session(server: RestServer, password: str = PASSWORD, thumbprint: str = "") -> Session:
    to = Connection(
        provider_namespace="tests",
        provider_name="vc",
        endpoints=(f"https://127.0.0.1:{server.port}/sdk",),
        credentials={"username": SecretStr("admin"), "password": SecretStr(password)},
        capabilities=Capabilities(),
        thumbprints=(thumbprint or server.thumbprint,),
    )
    endpoint = Endpoint.parse(to.endpoints[0])
    found = SimpleNamespace(
        credentials=(to.credentials["username"], to.credentials["password"]),
        trust=Trust.of(to),
        login=SimpleNamespace(ops=SimpleNamespace(endpoint=endpoint)),
    )
    return cast("Session", found)


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def rest(server: RestServer, clock: _Clock) -> Iterator[Rest]:
    rest = Rest(_session(server), clock)
    yield rest
    rest.close()


def _path(server: RestServer, path: str, identity: str = "") -> str:
    if not server.old:
        return path + (f"/{identity}" if identity else "")
    prefix = "" if path.startswith("vcenter/") else "com/vmware/"
    tail = identity if path.startswith("vcenter/") else f"id:{identity}"
    return prefix + path + (f"/{tail}" if identity else "")


def _on(
    server: RestServer,
    method: str,
    path: str,
    value: Any,  # noqa: ANN401 - JSON
    *,
    action: str = "",
    identity: str = "",
) -> None:
    def answer(body: Any) -> Answer:  # noqa: ANN401 - JSON
        found = value(body) if callable(value) else value
        return found if isinstance(found, tuple) else (200, found)

    server.answers[method, _path(server, path, identity), action] = answer


def _tagging(server: RestServer) -> dict[str, tuple[str, str]]:
    """A service with two categories; tags by id, which tests fill."""
    tags: dict[str, tuple[str, str]] = {}
    category, tag = "cis/tagging/category", "cis/tagging/tag"
    _on(server, "GET", category, list(_CATEGORIES))
    for key, name in _CATEGORIES.items():
        _on(server, "GET", category, {"id": key, "name": name}, identity=key)
        # The older dialect names the category in the path, the newer one in the body alone.
        where = key if server.old else ""

        def listed(body: Any) -> list[str]:  # noqa: ANN401 - JSON
            return [it for it, (found, _) in tags.items() if found == body["category_id"]]

        _on(server, "POST", tag, listed, action="list-tags-for-category", identity=where)

    def make(body: Any) -> Answer:  # noqa: ANN401 - JSON
        spec = body["create_spec"] if server.old else body
        if (spec["category_id"], spec["name"]) in tags.values():
            return 400, {"error_type": "ALREADY_EXISTS"}
        _put(server, tags, spec["category_id"], spec["name"])
        return 200, list(tags)[-1]

    _on(server, "POST", tag, make)
    return tags


def _put(server: RestServer, tags: dict[str, tuple[str, str]], category: str, name: str) -> str:
    key = f"urn:t:{len(tags)}"
    tags[key] = (category, name)
    _on(server, "GET", "cis/tagging/tag", {"id": key, "name": name}, identity=key)
    return key


def test_tags_are_found_made_and_kept_in_either_dialect(server: RestServer, rest: Rest) -> None:
    tags = _tagging(server)
    blue = _put(server, tags, "urn:c:1", "blue")
    names = Tags(rest, lambda: 0.0, create=True)
    assert names.find("team", "blue") == blue
    assert names.find("tier", "blue") is None
    made = names.ensure("tier", "gold")
    assert tags[made] == ("urn:c:2", "gold")
    before = len(server.seen)
    assert names.ensure("tier", "gold") == made
    assert names.find("team", "blue") == blue
    assert len(server.seen) == before, "names that are known cost no call"
    assert server.logins == 1


def test_a_tag_somebody_made_at_the_same_moment_is_taken(
    server: RestServer, rest: Rest, clock: _Clock
) -> None:
    tags = _tagging(server)
    names = Tags(rest, clock, create=True)
    assert names.find("team", "red") is None
    theirs = _put(server, tags, "urn:c:1", "red")
    assert names.ensure("team", "red") == theirs


def test_nothing_is_made_unless_the_provider_allows_it(server: RestServer, rest: Rest) -> None:
    _tagging(server)
    names = Tags(rest, lambda: 0.0, create=False)
    with pytest.raises(NeedsOperator, match="no tag 'red' in category 'team'"):
        names.ensure("team", "red")
    with pytest.raises(NeedsOperator, match="no category 'zone'"):
        names.ensure("zone", "red")
    assert may_create({}) is False
    assert may_create({"createTags": "True"}) is True
    with pytest.raises(NeedsOperator, match="neither true nor false"):
        may_create({"createTags": "perhaps"})


def test_some_tags_that_were_refused_are_told(server: RestServer, rest: Rest) -> None:
    refused = {"success": False, "error_messages": [{"id": "cardinality"}]}
    path, action = "cis/tagging/tag-association", "attach-multiple-tags-to-object"
    _on(server, "POST", path, refused, action=action)
    with pytest.raises(NeedsOperator, match="refused some of the VM's tags"):
        Tags(rest, lambda: 0.0, create=False).attach("vm-1", ["urn:t:1"])


def test_a_session_that_ended_is_renewed_once(server: RestServer, rest: Rest) -> None:
    _on(server, "GET", "cis/tagging/category", [])
    assert rest.get("cis/tagging/category") == []
    server.tokens.clear()
    assert rest.get("cis/tagging/category") == []
    assert server.logins == 2
    rest.close()
    assert server.tokens == [], "it logs out"
    with pytest.raises(Transient):
        rest.get("cis/tagging/category")


def test_a_login_that_is_refused_says_so_and_shows_nothing(server: RestServer) -> None:
    rest = Rest(_session(server, "wrong-4714"))
    with pytest.raises(NeedsOperator) as refused:
        rest.get("cis/tagging/category")
    assert refused.value.reason is Reason.INVENTORY_FAILED, "the Provider would give up its login"
    assert "4714" not in f"{refused.value!r} {rest!r} {refused.value.native}"
    rest.close()


def test_a_login_that_is_refused_is_not_tried_often_enough_to_lock_the_account(
    server: RestServer, clock: _Clock
) -> None:
    """Each machine asks again by itself; some tries in a few minutes lock SOAP out as well."""
    rest = Rest(_session(server, "wrong-4714"), clock)
    for _ in range(3):
        with pytest.raises(NeedsOperator):
            rest.get("cis/tagging/category")
    once = len(server.seen)
    with pytest.raises(NeedsOperator):
        rest.get("cis/tagging/category")
    assert 0 < len(server.seen) == once <= 2, "one login in either dialect"
    clock.now += 241.0
    with pytest.raises(NeedsOperator) as refused:
        rest.get("cis/tagging/category")
    assert refused.value.reason is Reason.INVENTORY_FAILED
    assert len(server.seen) == 2 * once
    rest.close()


def test_a_certificate_that_is_not_pinned_is_told_no_secret(server: RestServer) -> None:
    rest = Rest(_session(server, thumbprint="00" * 32))
    with pytest.raises(NeedsOperator) as refused:
        rest.get("cis/tagging/category")
    assert refused.value.reason is Reason.PROVIDER_TLS_INVALID
    assert server.seen == []
    rest.close()


def test_a_service_without_an_answer_is_left_alone_for_a_while(
    server: RestServer, rest: Rest, clock: _Clock
) -> None:
    _on(server, "GET", "cis/tagging/category", [])
    server.silent.set()
    with pytest.raises(DriverError) as silence:
        rest.get("cis/tagging/category")
    assert not isinstance(silence.value, Unreachable), "that would count as the vCenter's outage"
    server.silent.clear()
    before = len(server.seen)
    with pytest.raises(Transient):
        rest.get("cis/tagging/category")
    assert len(server.seen) == before
    clock.now += 16.0
    assert rest.get("cis/tagging/category") == []


def test_an_answer_that_breaks_off_names_nothing(server: RestServer, rest: Rest) -> None:
    """The category was made; without its id a tag would be put into none."""
    _on(server, "GET", "cis/tagging/category", lambda _: (200, []))
    _on(server, "POST", "cis/tagging/category", lambda _: (200, "urn:c:3"))
    assert rest.get("cis/tagging/category") == []
    server.half.set()
    with pytest.raises(Transient):
        rest.post("cis/tagging/category", {"name": "team"}, wrapped="create_spec")


def test_a_call_that_hangs_takes_no_other_thread_along(server: RestServer, rest: Rest) -> None:
    _on(server, "GET", "cis/tagging/category", [])
    rest.get("cis/tagging/category")
    server.hung.set()
    first = threading.Thread(target=_ignoring, args=(rest,))
    first.start()
    wait_until(lambda: len(server.seen) > 1 or rest.busy, 5, "the call that hangs")
    with pytest.raises(Transient, match="slow"):
        rest.get("cis/tagging/category")
    server.silent.set()
    server.freed.set()
    first.join(10)
    assert not first.is_alive()


def _ignoring(rest: Rest) -> None:
    with contextlib.suppress(DriverError):
        rest.get("cis/tagging/category")


def test_refusals_are_told_apart(server: RestServer, rest: Rest) -> None:
    path = "cis/tagging/category"
    for status, kind, what in (
        (403, "UNAUTHORIZED", "denied"),
        (404, "NOT_FOUND", "missing"),
        (400, "com.vmware.vapi.std.errors.already_exists", "exists"),
    ):
        _on(server, "GET", path, (status, {"type": kind}))
        with pytest.raises(RestError) as refused:
            rest.get(path)
        told = {name: getattr(refused.value, name) for name in ("denied", "missing", "exists")}
        assert told == {name: name == what for name in told}
    _on(server, "GET", path, (503, None))
    with pytest.raises(Transient):
        rest.get(path)


def test_threads_share_one_session(server: RestServer, rest: Rest) -> None:
    _on(server, "GET", "cis/tagging/category", [])
    threads = [threading.Thread(target=rest.get, args=("cis/tagging/category",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.logins == 1
    assert rest.calls() == {"GET cis/tagging/category": 8}


# Templates by reference


def _library(server: RestServer, kind: str) -> None:
    library, item = "content/library", "content/library/item"

    def find(body: Any) -> list[str]:  # noqa: ANN401 - JSON
        spec = body["spec"] if server.old else body
        if spec.get("library_id"):
            return ["item-1"] if (spec["library_id"], spec["name"]) == ("lib-1", "ubuntu") else []
        return ["lib-1"] if spec["name"] == "golden" else []

    _on(server, "POST", library, find, action="find")
    _on(server, "POST", item, find, action="find")
    _on(server, "GET", item, {"id": "item-1", "type": kind}, identity="item-1")
    _on(
        server,
        "GET",
        "vcenter/vm-template/library-items",
        {"vm_template": "vm-7"},
        identity="item-1",
    )


def _references(rest: Rest, clock: _Clock) -> References:
    tags = Tags(rest, clock, create=False)
    return References(rest=rest, tags=tags, monotonic=clock, max_age=300.0)


def test_a_vm_template_of_a_content_library_is_the_vm_it_holds(
    server: RestServer, rest: Rest, clock: _Clock
) -> None:
    """CAPV #1838: content library items as images."""
    _library(server, "vm-template")
    found = _references(rest, clock)
    assert found.resolve("ubuntu") is None
    assert found.resolve("library:golden/ubuntu") == frozenset({"vm-7"})
    before = len(server.seen)
    assert found.resolve("library:golden/ubuntu") == frozenset({"vm-7"})
    assert len(server.seen) == before
    assert found.resolve("library:golden/debian") == frozenset()
    assert found.resolve("library:silver/ubuntu") == frozenset()
    clock.now += 301.0
    found.resolve("library:golden/ubuntu")
    assert len(server.seen) > before


def test_an_ovf_of_a_content_library_says_what_to_do(
    server: RestServer, rest: Rest, clock: _Clock
) -> None:
    _library(server, "ovf")
    with pytest.raises(NeedsOperator, match="keep it there as a VM template") as refused:
        _references(rest, clock).resolve("library:golden/ubuntu")
    assert refused.value.reason is Reason.IMAGE_NOT_AVAILABLE


def test_a_tag_means_what_carries_it(server: RestServer, rest: Rest, clock: _Clock) -> None:
    tags = _tagging(server)
    key = _put(server, tags, "urn:c:2", "gold")
    objects = [{"type": "VirtualMachine", "id": "vm-9"}]
    answer = [{"tag_id": key, "object_ids": objects}]
    path, action = "cis/tagging/tag-association", "list-attached-objects-on-tags"
    _on(server, "POST", path, answer, action=action)
    found = _references(rest, clock)
    assert found.resolve("tag:tier/gold") == frozenset({"vm-9"})
    assert found.resolve("tag:tier/silver") == frozenset()
    with pytest.raises(InvalidSpec, match="tag:category/name"):
        found.resolve("tag:gold")
