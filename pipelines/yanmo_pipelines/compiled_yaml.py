"""A compiled pipeline's YAML, read and written by libyaml where PyYAML has it: several times as fast.

PyYAML is imported when there is something to read or to write: a `--help` does not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def documents_of(text: str) -> list[Any]:
    """The YAML's documents: the pipeline, and what is Kubernetes' own of it.

    Raises:
        yaml.YAMLError: it is not YAML.
    """
    import yaml

    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def text_of(documents: Iterable[Any]) -> str:
    """What `documents_of` reads."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump_all(documents, Dumper=dumper, sort_keys=False, width=110))
