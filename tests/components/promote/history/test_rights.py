"""Who may move a champion is the store's rights: the example policy on a real S3 server, with two users."""

import json
from pathlib import Path

import pytest

from yanmo.common.errors import EnvironmentFault
from yanmo.nights.index import rows_shown
from yanmo.store.champion_records import all_records
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

        def give(self, **channels):
            """Each user the rights of one channel, as the example says."""
            statements = []
            for user, channel in channels.items():
                text = (POLICIES / "channel.json").read_text(encoding="utf-8")
                words = {"USER": user, "BUCKET": s3_place, "PREFIX": self.prefix, "CHANNEL": channel}
                for name, value in words.items():
                    text = text.replace(name, value)
                statements += [{**one, "Sid": one["Sid"] + user} for one in json.loads(text)["Statement"]]
                s3_server.user(user)
            policy = {"Version": "2012-10-17", "Statement": statements}
            s3_server.client().set_bucket_policy(bucket_name=s3_place, policy=json.dumps(policy))

    return Place()


def stage_of(stage, place, user):
    """The same tests' stage, on the bucket, as that user."""
    place.be(user)
    return type(stage)(open_store(place.uri), place.uri)


def test_a_user_works_in_its_own_channel_and_in_no_other(stage, place, caplog):
    """Also the night's page, and a training that others left, which they may not take from it."""
    place.give(nightly="dev", approver="prod")
    nightly = stage_of(stage, place, "nightly")
    nightly.evaluate(nightly.model(1), 8.0)
    assert nightly.promote("--run-id", "night-1") == 0
    assert [row.run_id for row in rows_shown(nightly.store, "dev")] == ["night-1"]
    better = nightly.model(2)
    nightly.evaluate(better, 7.8)
    assert nightly.promote("--hold") == 0
    signed = ("--why", "good", "--who", "li", "--yes")
    approver = stage_of(stage, place, "approver")
    assert approver.tool("set", better.reference.key, *signed) == 78, "not its channel"
    assert approver.pointer("champion") != better.reference
    assert "pointers/dev/" in caplog.text and "s3:PutObject" in caplog.text
    nightly = stage_of(stage, place, "nightly")
    assert nightly.tool("set", better.reference.key, *signed) == 0
    assert nightly.pointer("champion") == better.reference


def test_nobody_deletes_an_output(stage, place):
    place.give(nightly="dev", approver="prod")
    nightly = stage_of(stage, place, "nightly")
    model = nightly.model(1)
    for user in ("nightly", "approver"):
        store = stage_of(stage, place, user).store
        with pytest.raises((OSError, EnvironmentFault)):
            store.delete(model.reference.manifest_uri)
        assert store.stat(model.reference.manifest_uri) is not None
        store.create(f"runs/x/{user}", b"work in progress")
        store.delete(f"runs/x/{user}")


def test_of_two_channels_nights_have_one_and_approvers_promote_into_the_other(stage, place, caplog):
    place.give(nightly="dev", approver="prod")
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
