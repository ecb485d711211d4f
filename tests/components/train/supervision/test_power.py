"""The power limit is set, and set back, through the driver; here that of nvml_answers.py."""

from __future__ import annotations

import logging

import pytest
from nvml_answers import Driver, bindings_of

from yanmo.stage.nvml import Nvml
from yanmo.train.supervision.power import power_limit


@pytest.fixture
def driver(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Driver()


def limited(driver: Driver, watts: int):
    return power_limit(watts, Nvml(bindings_of(driver)))


def test_the_limit_holds_inside_and_the_old_one_comes_back(driver):
    driver.limits[2] = 650_000
    with pytest.raises(KeyError), limited(driver, 450):
        assert driver.limits == {1: 450_000, 2: 450_000}
        raise KeyError
    assert driver.limits == {1: 700_000, 2: 650_000}


def test_a_refusal_is_a_warning_and_training_goes_on(driver, caplog):
    driver.may_set_limits = False
    with limited(driver, 450):
        pass
    assert caplog.text.count("Insufficient Permissions") == driver.cards
    assert driver.calls.count("nvmlDeviceSetPowerManagementLimit") == driver.cards, "nothing is set back"


def test_without_a_gpu_a_limit_has_no_effect_and_says_so(caplog, monkeypatch):
    with caplog.at_level(logging.WARNING), limited(Driver(cards=0), 450):
        pass
    assert "450 W" in caplog.text


def test_no_limit_calls_nothing(driver):
    with limited(driver, 0):
        pass
    assert not driver.calls
