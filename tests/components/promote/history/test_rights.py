"""Who may move a champion is the store's rights: the example policies, tried on a real S3 server."""

import json
from pathlib import Path

import pytest

from yanmo.promote.history.champion_records import all_records
from yanmo.store.opening import open_store

POLICIES = Path(__file__).parents[4] / "manifests/policies"


@pytest.fixture
def place(s3_server, s3_place, monkeypatch, request):
    """A bucket, a way to be one of its users, and a way to give it one of the policies."""
    if s3_server.bucket:
        pytest.skip("a given server has no users of ours")

    class Place:
        prefix = request.node.name
        uri = f"s3://{s3_place}/{prefix}"

        def be(self, user):
            server = s3_server if user == "owner" else s3_server.user(user)
            for name, value in server.environment().items():
                monkeypatch.setenv(name, value)

        def give(self, policy, channel):
            text = (POLICIES / f"{policy}.json").read_text(encoding="utf-8")
            words = {"NIGHTLY": "nightly", "APPROVER": "approver", "BUCKET": s3_place}
            for name, value in {**words, "PREFIX": self.prefix, "CHANNEL": channel}.items():
                text = text.replace(name, value)
            json.loads(text)
            for user in ("nightly", "approver"):
                s3_server.user(user)
            s3_server.client().set_bucket_policy(bucket_name=s3_place, policy=text)

    return Place()


def stage_of(stage, place, user):
    """The same tests' stage, on the bucket, as that user."""
    place.be(user)
    return type(stage)(open_store(place.uri), place.uri)


def test_in_one_channel_nights_hold_and_approvers_promote(stage, place, caplog):
    place.give("one-channel", "dev")
    approver = stage_of(stage, place, "approver")
    approver.evaluate(approver.model(1), 8.0)
    assert approver.promote() == 0
    first = approver.pointer("champion")
    nightly = stage_of(stage, place, "nightly")
    better = nightly.model(2)
    nightly.evaluate(better, 7.8)
    assert nightly.promote() == 78
    assert "pointers/dev/champion.json: 403 AccessDenied" in caplog.text
    assert "the bucket's policy, which may not grant them s3:PutObject" in caplog.text
    assert "with --hold the pointer stays for a person who may write pointers/dev/" in caplog.text
    assert nightly.pointer("champion") == first
    assert nightly.promote("--hold") == 0
    caplog.clear()
    signed = ("--why", "good", "--who", "night", "--yes")
    assert nightly.tool("set", better.reference.key, *signed) == 78
    assert nightly.tool("rollback", *signed) in (65, 78) and nightly.pointer("champion") == first
    approver = stage_of(stage, place, "approver")
    assert approver.tool("set", better.reference.key, "--why", "reads well", "--who", "li", "--yes") == 0
    assert approver.pointer("champion") == better.reference
    assert [r.who for r in all_records(approver.store, "dev")] == ["", "li"]


def test_of_two_channels_nights_have_one_and_approvers_promote_into_the_other(stage, place, caplog):
    place.give("two-channels", "prod")
    nightly = stage_of(stage, place, "nightly")
    evaluation = nightly.evaluate(nightly.model(1), 8.0)
    assert nightly.promote() == 0, "their own channel is theirs"
    judged = (
        "--channel",
        "prod",
        "--challenger",
        f"evaluate/{evaluation.reference.key}",
        "--champion",
        "none",
    )
    assert nightly.promote(*judged) == 78
    assert "pointers/prod/" in caplog.text and "s3:PutObject" in caplog.text
    approver = stage_of(stage, place, "approver")
    assert all_records(approver.store, "prod") == []
    assert approver.promote(*judged) == 0
    assert len(all_records(approver.store, "prod")) == 1
