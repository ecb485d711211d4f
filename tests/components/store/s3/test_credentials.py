"""Where credentials, endpoint and region come from, and in which order."""

from __future__ import annotations

import http.server
import logging
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from yanmo.common.errors import EnvironmentFault, StorageError
from yanmo.store import mounted as store_mounted
from yanmo.store.s3 import credentials
from yanmo.store.s3.credentials import find_credentials, find_endpoint, find_region


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(("AWS_", "MINIO_", "YANMO_S3")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(store_mounted, "SECRET_FOLDERS", (str(tmp_path / "own"), str(tmp_path / "kfp")))


def keys() -> tuple[str, str, str | None]:
    found = find_credentials().retrieve()
    return found.access_key, found.secret_key, found.session_token


def secret(folder: Path, **values: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, value in values.items():
        (folder / name).write_text(value + "\n", encoding="utf-8")


def profile(path: Path, access: str, name: str = "default") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"[{name}]\naws_access_key_id = {access}\naws_secret_access_key = s\n", encoding="utf-8")


def test_without_any_the_error_says_where_was_looked() -> None:
    with pytest.raises(
        EnvironmentFault, match=r"AWS_ACCESS_KEY_ID.*accesskey.*own.*kfp.*credentials file.*TOKEN"
    ):
        find_credentials()


def test_the_environment_comes_first_then_secrets_then_the_aws_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profile(tmp_path / ".aws/credentials", "from-file")
    assert keys() == ("from-file", "s", None)
    secret(tmp_path / "kfp", accesskey="from-kfp", secretkey="s")
    assert keys()[0] == "from-kfp", "KFP's own secret works as it is"
    secret(tmp_path / "own", AWS_ACCESS_KEY_ID="from-own", AWS_SECRET_ACCESS_KEY="s", AWS_SESSION_TOKEN="t")
    assert keys() == ("from-own", "s", "t")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-env")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert keys()[0] == "from-env"


def test_a_profile_and_a_file_elsewhere_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profile(tmp_path / "x/keys", "of-team", "team")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "x/keys"))
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert keys()[0] == "of-team"


def test_a_rotated_secret_is_seen_by_a_running_process(tmp_path: Path) -> None:
    secret(tmp_path / "own", access_key_id="old", secret_access_key="s")
    provider = find_credentials()
    secret(tmp_path / "own", access_key_id="new", secret_access_key="s")
    assert provider.retrieve().access_key == "new"


def test_a_secret_that_is_exchanged_while_it_is_read_gives_no_halves_of_two_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret(tmp_path / "own", accesskey="old", secretkey="of-old")
    real = credentials.value_in

    def value_in(folder: Path, names: tuple[str, ...]) -> str:
        found = real(folder, names)
        secret(tmp_path / "own", accesskey="new", secretkey="of-new")
        return found

    monkeypatch.setattr(credentials, "value_in", value_in)
    found = credentials.MountedSecret().retrieve()
    assert (found.access_key, found.secret_key) == ("new", "of-new")


def test_one_folder_never_lends_half_a_pair_to_another(tmp_path: Path) -> None:
    secret(tmp_path / "own", accesskey="own")
    secret(tmp_path / "kfp", accesskey="kfp", secretkey="of-kfp")
    assert keys()[:2] == ("kfp", "of-kfp")


STS = b"""<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>of-role</AccessKeyId>
<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


@pytest.fixture
def sts() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(self.path + body.decode())
            code = self.path[1:4]
            self.send_response(int(code) if code.isdigit() else 200)
            self.send_header("Content-Type", "application/xml")
            self.end_headers()
            self.wfile.write(STS)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def test_a_web_identity_is_traded_for_keys(
    sts: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("the-jwt", encoding="utf-8")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/yanmo")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts[0])
    assert keys() == ("of-role", "s", "t")
    assert "AssumeRoleWithWebIdentity" in sts[1][0] and "the-jwt" in sts[1][0] and "role%2Fyanmo" in sts[1][0]


@pytest.mark.parametrize(("status", "passing"), [(429, True), (503, True), (403, False), (0, True)])
def test_a_token_service_that_fails_is_told_without_the_token(
    sts: tuple[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    status: int,
    passing: bool,
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "token").write_text("the-jwt", encoding="utf-8")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/yanmo")
    url = f"{sts[0]}/{status}" if status else "http://127.0.0.1:9"
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
    with pytest.raises(StorageError if passing else EnvironmentFault) as caught:
        find_credentials()
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "the-jwt" not in shown and (str(status) in shown or not status)


def test_the_endpoint_is_the_option_then_the_environment_then_the_secret_then_the_scheme(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_endpoint("", "s3") == "https://s3.amazonaws.com"
    assert find_endpoint("", "minio") == "http://seaweedfs.kubeflow:9000"
    secret(tmp_path / "own", endpoint_url="http://secret:1", region="eu-north-1")
    assert find_endpoint("", "minio") == "http://secret:1" and find_region() == "eu-north-1"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://env:1")
    assert find_endpoint("", "s3") == "http://env:1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://env-s3:1")
    assert find_endpoint("", "s3") == "http://env-s3:1"
    assert find_endpoint("http://option:1", "s3") == "http://option:1"
    monkeypatch.setenv("AWS_REGION", "cn-north-1")
    assert find_region() == "cn-north-1"
