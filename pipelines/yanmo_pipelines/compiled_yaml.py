"""A compiled pipeline's YAML, read by libyaml where PyYAML has it: several times as fast."""

from __future__ import annotations

from typing import Any


def documents_of(text: str) -> list[Any]:
    """The YAML's documents: the pipeline, and what is Kubernetes' own of it.

    Raises:
        yaml.YAMLError: it is not YAML.
    """
    import yaml

    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
