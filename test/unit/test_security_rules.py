"""Every rule of docs/security.md has a test that names it, and no test names one not there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from test.kit.yaml_text import yaml_documents

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"

_RULE = re.compile(r"^- \*\*(\d+\.\d+)\*\* ", re.MULTILINE)


def rules() -> list[str]:
    """The numbers of the rules, in the order of the page."""
    return _RULE.findall(PAGE.read_text(encoding="utf-8"))


def named() -> Iterator[tuple[str, str]]:
    """Numbers that tests name by marker, with the file."""
    for path in sorted((ROOT / "test").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "mark.security" not in source or path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.security"):
                for arg in node.args:
                    if isinstance(arg, ast.Constant):
                        yield str(arg.value), str(path.relative_to(ROOT))


def test_every_rule_has_a_test_that_names_it_and_every_name_is_a_rule() -> None:
    own = {"5.1"}
    shown = {number for number, _ in named()} | own
    assert sorted(set(rules()) - shown) == []
    assert (
        sorted({f"{number} in {where}" for number, where in named() if number not in rules()}) == []
    )


def test_the_rules_are_numbered_in_order_and_once() -> None:
    ordered = sorted(set(rules()), key=lambda it: [int(part) for part in it.split(".")])
    assert rules() == ordered
    assert len(ordered) > 20


@pytest.mark.security("5.1")
def test_without_the_operator_nobody_makes_workloads_or_hands_out_rights() -> None:
    files = [
        *(ROOT / "config" / "rbac").glob("*.yaml"),
        *(ROOT / "config" / "providers").rglob("*.yaml"),
    ]
    groups = {"apps", "batch", "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "*"}
    found = [
        f"{path.name}: {it['metadata']['name']}"
        for path in sorted(files)
        if path.name != "operator.yaml"
        for it in yaml_documents(path.read_text(encoding="utf-8"))
        for rule in (it or {}).get("rules") or ()
        if groups & set(rule["apiGroups"])
        or {"escalate", "bind", "impersonate", "*"} & set(rule["verbs"])
        or ({"pods", "serviceaccounts/token"} & set(rule["resources"]) and rule["verbs"] != ["get"])
    ]
    assert found == []
