"""The power limit is set, and set back, through nvidia-smi; here a script that keeps its limits in a file."""

from __future__ import annotations

import logging

import pytest

from yanmo.train.supervision.power import power_limit

SCRIPT = """#!/bin/sh
cd "$(dirname "$0")"
case "$1" in
  --query*) cat limits ;;
  -i) if [ -e locked ]; then echo "Insufficient Permissions" >&2; exit 4; fi
      echo "$2, $4" > limits; echo "$4" >> calls ;;
esac
"""


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """A folder with the script and its files, first on PATH."""
    path = tmp_path / "nvidia-smi"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    (tmp_path / "limits").write_text("0, 700.00\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_the_limit_holds_inside_and_the_old_one_comes_back(smi):
    with pytest.raises(KeyError), power_limit(450):
        assert (smi / "limits").read_text() == "0, 450\n"
        raise KeyError
    assert (smi / "calls").read_text() == "450\n700\n"


def test_a_refusal_is_one_warning_and_training_goes_on(smi, caplog):
    (smi / "locked").touch()
    with power_limit(450):
        pass
    assert caplog.text.count("Insufficient Permissions") == 1
    assert (smi / "limits").read_text() == "0, 700.00\n"


def test_without_nvidia_smi_a_limit_has_no_effect_and_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("PATH", str(tmp_path))
    with caplog.at_level(logging.WARNING), power_limit(450):
        pass
    assert "450 W" in caplog.text


def test_no_limit_calls_nothing(smi):
    with power_limit(0):
        pass
    assert not (smi / "calls").exists()
