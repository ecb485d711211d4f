"""What an address keeps to itself is in no text of it, whatever characters it has."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from yanmo.common.address import Address, redacted
from yanmo.common.errors import UsageError, advice

MARK = "K7MDENG"
SECRETS = st.tuples(st.text(max_size=8), st.text(max_size=8)).map(MARK.join)
SCHEMES = st.sampled_from(["http://", "https://", "HTTP://", "git+https://", "9http://"])
SHAPES = st.sampled_from(
    [
        *("{s}u:{x}@h:1/a", "{s}{x}@h", "{s}{x}:y@h/b", "{s}h/?k={x}", "{s}h/a?{x}", "{s}h?a=b&k={x}#c"),
        *("{s}u:{x}@h/?k={x}", "mlflow={s}u:{x}@h,tensorboard=a", "{s}h/a?{x};genre=shi"),
        *("s3://b/a.jsonl,{s}u:{x}@h/x", "tensorboard=file:///tmp/x,mlflow={s}{x}@h", "{s}a/b,{s}h/?k={x}"),
    ]
)


@settings(max_examples=500, deadline=None)
@given(SCHEMES, SHAPES, SECRETS)
def test_no_text_of_an_address_holds_its_secrets(scheme: str, shape: str, secret: str) -> None:
    given_text = shape.format(s=scheme, x=secret)
    address = Address(given_text)
    assert address.has_secrets and address.whole == given_text
    for shown in (str(address), repr(address), f"{address}", f"{address!r:>9}", str([address])):
        assert MARK not in shown, shown


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["u:{x}@h:1", "{x}@h", "h/?k={x}"]), SECRETS)
def test_nor_does_one_that_was_given_without_http(shape: str, secret: str) -> None:
    if "://" not in secret:
        assert MARK not in str(Address(shape.format(x=secret), bare=True))


@pytest.mark.parametrize("scheme", ["s3://", "minio://", "postgresql://", "file://"])
@pytest.mark.parametrize(
    "shape", [f"u:{MARK}@b/a", f"{MARK}@b/a", f"b/a?X-Amz-Signature={MARK}", f"b?password={MARK}&x=y@z"]
)
def test_other_schemes_have_secrets_too(scheme: str, shape: str) -> None:
    assert MARK not in str(Address(scheme + shape))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "s3://b/a?.txt;genre=shi",
            "s3://bucket/poem@tang",
            "s3://b/p?.txt",
            "s3://b/year=?/*.jsonl",
            "file:///a@b/?.txt",
            "a@b",
            "?",
        ),
        *("sqlite:///a@b.db", "https://h/a/#/runs/details/1", "https://h/", "1 < 2 ? a : b", ""),
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert str(Address(text)) == text == redacted(text) and not Address(text).has_secrets


@pytest.mark.parametrize("before", ["", "(", "<a href=", "see: "])
@pytest.mark.parametrize("after", ["", ")", ": refused", ", and again", '">'])
@pytest.mark.parametrize("address", [f"https://h/a?k={MARK}", f"http://u:a/{MARK}@h/a", f"http://{MARK}@h"])
def test_nor_does_prose_hold_them(address: str, before: str, after: str) -> None:
    shown = redacted(f"{before}{address}{after}")
    assert MARK not in shown and shown.startswith(before)
    assert MARK not in advice(UsageError(f"{before}{address}{after}"))


@settings(max_examples=200, deadline=None)
@given(SECRETS.filter(lambda s: "\0" not in s and s.isprintable() and s == s.strip() and "\\" not in s))
@example("***" + MARK)
def test_nor_those_of_a_variable_of_the_environment(secret: str) -> None:
    """A proxy's password with blanks in it, which a library shows as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTTPS_PROXY", f"http://me:{secret}@proxy:3128")
        patch.setenv("MLFLOW_TRACKING_PASSWORD", secret)
        for said in (f"http://me:{secret}@proxy:3128: no answer", f"refused {secret}", f"{secret!r}"):
            assert MARK not in redacted(said), redacted(said)
