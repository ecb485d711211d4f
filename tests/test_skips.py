"""The summary of skipped tests."""

from skips import summary


def test_reasons_are_counted_and_the_command_installs_what_is_missing():
    s3 = "Skipped: needs an S3 server: no radosgw on the PATH"
    harness = "lm-evaluation-harness is not installed (an extra)"
    assert list(summary([s3, harness, s3, "needs a CUDA device"])) == [
        "skipped 2: needs an S3 server: no radosgw on the PATH",
        "skipped 1: lm-evaluation-harness is not installed (an extra)",
        "skipped 1: needs a CUDA device",
        "to run more of them: apt-get install -y radosgw ceph-mon ceph-osd ceph-common openssl && "
        ".venv/bin/python -m pip install -e '.[harness]'",
    ]


def test_nothing_is_said_where_nothing_can_be_done():
    assert list(summary([])) == []
    assert list(summary(["needs a CUDA device"])) == ["skipped 1: needs a CUDA device"]
