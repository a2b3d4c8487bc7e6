"""YAML of the size of our CustomResourceDefinitions, read by the parser that is written in C.

The one written in Python takes half a second for them, in every test that installs banlieue.
"""

from typing import Any

import yaml


def yaml_documents(text: str) -> list[Any]:
    """All documents of a YAML text, safely: plain values only."""
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))
