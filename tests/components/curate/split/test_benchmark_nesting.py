"""Strings of a benchmark's records, however deep they lie."""

from hypothesis import given
from hypothesis import strategies as st

from yanmo.curate.split.benchmark_files import _strings

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
)


def by_recursion(value):
    if isinstance(value, str):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for each in values for text in by_recursion(each)]


@given(JSON)
def test_strings_come_in_the_order_of_the_record(value):
    assert list(_strings(value)) == by_recursion(value)


def test_a_record_nested_deeper_than_the_stack_is_read():
    deep = ["明月"]
    for _ in range(5000):
        deep = [deep]
    assert list(_strings(deep)) == ["明月"]
