"""What the form says of pods is what Kubernetes takes, or is refused in words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from yanmo.options.pods import Cores, Gpus, Memory, NodeLabels, Taints

LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
"""apimachinery/pkg/util/validation: labelValueFmt; at most 63 characters."""
NEARLY = st.text(st.sampled_from("0123456789.mkKMGTie-+ n"), max_size=8)


@given(st.one_of(NEARLY, st.text(max_size=8)))
def test_an_amount_is_one_for_kubernetes_and_above_nothing_or_refused(text: str) -> None:
    for kind in (Cores, Memory, Gpus):
        try:
            found = str(kind(text))
        except ValueError:
            continue
        amount = parse_quantity(found)
        assert amount >= 0 if kind is Gpus else amount > 0, (kind, text)
        assert found == text.strip() and found.isascii()


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (
            Cores,
            ["8", "0.5", "500m", " 16 ", "0.001"],
            ["", "0", "0m", "-1", "1e3", "8 cores", "8Gi", "0.0001"],
        ),
        (
            Memory,
            ["32Gi", "500Mi", "1.5G", "70000k"],
            ["", "0Gi", "32", "32K", "32GB", "-1Gi", "32 Gi", "32gi"],
        ),
        (Gpus, ["0", "1", "16"], ["", "-1", "1.5", "two", "1Gi"]),
        (NodeLabels, ["", "pool=gpu", "a.b/c=d, e="], [",", "gpu", "=a", "a==b", "a=b c", "-a=b", "a=b,c"]),
        (
            Taints,
            ["", "a", "a=b", "a=:NoExecute", "a.b/c:NoSchedule"],
            ["a:Never", ":NoExecute", "a=b=c", "a:"],
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_what_is_taken_and_what_is_not(kind: type, right: list[str], wrong: list[str]) -> None:
    for text in right:
        assert str(kind(text)) == text.strip()
    for text in wrong:
        with pytest.raises(ValueError):
            kind(text)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,9}(/[a-z]{1,9})?", fullmatch=True), st.text(max_size=70), max_size=3
    )
)
def test_labels_become_a_selector_that_kubernetes_takes(labels: dict[str, str]) -> None:
    text = ",".join(f"{label}={value}" for label, value in labels.items())
    is_right = all(LABEL_VALUE.fullmatch(value) and len(value) <= 63 for value in labels.values())
    if is_right:
        assert NodeLabels(text).selector == labels
    elif not any("," in value or any(map(str.isspace, value)) for value in labels.values()):
        with pytest.raises(ValueError):
            NodeLabels(text)


def test_taints_become_tolerations() -> None:
    assert Taints("nvidia.com/gpu:NoSchedule, pool=night, x=:NoExecute").tolerations == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "pool", "operator": "Equal", "value": "night"},
        {"key": "x", "operator": "Equal", "value": "", "effect": "NoExecute"},
    ]
