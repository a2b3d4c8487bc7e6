"""The parser and the writer of YAML, those written in C where PyYAML brings them.

The others take ten times as long, which people notice with texts the size of our
CustomResourceDefinitions.
"""

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    Loader = yaml.SafeLoader
    Dumper = yaml.SafeDumper
else:
    Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
