"""Tags and rules of a simulated vCenter as its admin uses them, past our own client."""

import base64
import json
import ssl
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pyVmomi import vim

from test.kit.vcsim import VCSim
from test.kit.vsphere_client import VSphereClient


class VSphereRest:
    """One session, past our own client."""

    def __init__(self, vcenter: VCSim) -> None:
        self._base = f"https://{urlsplit(vcenter.url).netloc}/rest/"
        self._context = ssl.create_default_context(cadata=vcenter.ca_pem)
        pair = f"{vcenter.username}:{vcenter.password}".encode()
        self._headers = {"Authorization": "Basic " + base64.b64encode(pair).decode()}
        token = self._call("POST", "com/vmware/cis/session")
        self._headers = {"vmware-api-session-id": token}

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        content = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310 - https to loopback
            self._base + path, content, headers, method=method
        )
        with urllib.request.urlopen(request, context=self._context, timeout=10) as answer:  # noqa: S310 - same
            text = answer.read()
        return json.loads(text).get("value") if text else None

    # Tags

    def make_category(self, name: str, *, single: bool = True) -> str:
        """A category of tags; its id."""
        spec: dict[str, Any] = {
            "name": name,
            "description": "",
            "cardinality": "SINGLE" if single else "MULTIPLE",
            "associable_types": [],
        }
        return str(self._call("POST", "com/vmware/cis/tagging/category", {"create_spec": spec}))

    def make_tag(self, category: str, name: str) -> str:
        """A tag in a category, by the category's id; its id."""
        spec = {"name": name, "description": "", "category_id": category}
        return str(self._call("POST", "com/vmware/cis/tagging/tag", {"create_spec": spec}))

    def attach(self, tag: str, kind: str, moid: str) -> None:
        """Put a tag on an object."""
        body = {"object_id": {"type": kind, "id": moid}}
        self._call("POST", f"com/vmware/cis/tagging/tag-association/id:{tag}?~action=attach", body)

    def tags_on(self, moid: str, kind: str = "VirtualMachine") -> set[tuple[str, str]]:
        """Category and name of the tags on an object."""
        body = {"object_id": {"type": kind, "id": moid}}
        path = "com/vmware/cis/tagging/tag-association?~action=list-attached-tags"
        found = set()
        for key in self._call("POST", path, body) or ():
            tag = self._call("GET", f"com/vmware/cis/tagging/tag/id:{key}")
            category = self._call("GET", f"com/vmware/cis/tagging/category/id:{tag['category_id']}")
            found.add((str(category["name"]), str(tag["name"])))
        return found

    def categories_on(self, moid: str, kind: str = "VirtualMachine") -> set[str]:
        """Ids of the categories that the tags on an object are of."""
        body = {"object_id": {"type": kind, "id": moid}}
        path = "com/vmware/cis/tagging/tag-association?~action=list-attached-tags"
        tags = self._call("POST", path, body) or ()
        return {
            str(self._call("GET", f"com/vmware/cis/tagging/tag/id:{key}")["category_id"])
            for key in tags
        }

    def drop_category(self, category: str) -> None:
        """Remove a category, by its id, and all its tags."""
        self._call("DELETE", f"com/vmware/cis/tagging/category/id:{category}")

    def make_library(self, name: str, datastore: str) -> str:
        """A content library on a datastore; its id."""
        backing = {"datastore_id": datastore, "type": "DATASTORE"}
        spec = {"name": name, "type": "LOCAL", "storage_backings": [backing]}
        return str(self._call("POST", "com/vmware/content/local-library", {"create_spec": spec}))

    def make_template_item(self, library: str, name: str, vm: str, folder: str, pool: str) -> str:
        """A copy of a VM as a VM template in a content library; the item's id.

        The simulator names the template as the item.
        """
        spec = {
            "library": library,
            "name": name,
            "source_vm": vm,
            "placement": {"folder": folder, "resource_pool": pool},
        }
        return str(self._call("POST", "vcenter/vm-template/library-items", {"spec": spec}))

    def end_sessions(self, tokens: Sequence[str]) -> None:
        """End sessions by their tokens."""
        own = self._headers
        for token in tokens:
            self._headers = {"vmware-api-session-id": token}
            self._call("DELETE", "com/vmware/cis/session")
        self._headers = own


def rules_of(vcenter: VCSim) -> list[set[str]]:
    """The VMs that each anti-affinity rule of the first cluster keeps apart, by id."""
    with VSphereClient(vcenter.url, ca_pem=vcenter.ca_pem) as admin:
        admin.login(vcenter.username, vcenter.password)
        found = admin.read(admin.at("DC0/host/DC0_C0"), "configurationEx.rule")
        admin.content.sessionManager.Logout()
    return [
        {str(vm._moId) for vm in rule.vm or ()}
        for rule in found.get("configurationEx.rule") or ()
        if isinstance(rule, vim.cluster.AntiAffinityRuleSpec)
    ]
