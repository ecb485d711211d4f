"""The GPUs on /metrics. The driver's answers are made from its documentation (nvml_answers.py)."""

from __future__ import annotations

import ctypes
import ctypes.util
import time
from pathlib import Path

import pytest
from nvml_answers import UUIDS, Driver

from yanmo.stage.exporter import Telemetry
from yanmo.stage.nvml import Nvml
from yanmo.stage.run_telemetry import EnergyMeter, show_gpus
from yanmo.stage.shared_metrics import GPU_METRICS

ROOT = Path(__file__).parents[3]


@pytest.fixture
def driver(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    made = Driver()
    yield made
    made.hangs.set()


def watched(driver: Driver, until="yanmo_gpu_info", **seconds: float) -> tuple[Telemetry, str]:
    telemetry = Telemetry("train", GPU_METRICS)
    show_gpus(telemetry, lambda: Nvml(driver), **seconds)
    return telemetry, wait_for(telemetry, until)


def wait_for(telemetry: Telemetry, until: str) -> str:
    end = time.monotonic() + 60
    while until not in (text := telemetry.text()):
        assert time.monotonic() < end, text
        time.sleep(0.02)
    return text


def test_every_metric_is_shown_in_base_units(driver):
    _, text = watched(driver)
    for line in (
        f'yanmo_gpu_info{{driver="575.57.08",gpu="1",name="NVIDIA H100 80GB HBM3",uuid="{UUIDS[1]}"}} 1.0',
        'yanmo_gpu_utilization_ratio{gpu="0"} 0.97',
        'yanmo_gpu_memory_used_bytes{gpu="0"} 6.442450944e+010',
        'yanmo_gpu_memory_bytes{gpu="0"} 8.589934592e+010',
        'yanmo_gpu_power_watts{gpu="0"} 312.5',
        'yanmo_gpu_power_limit_watts{gpu="1"} 1400.0',
        'yanmo_gpu_energy_joules_total{gpu="0"} 5000.0',
        'yanmo_gpu_temperature_celsius{gpu="0"} 64.0',
        'yanmo_gpu_throttled{gpu="0",reason="hardware_thermal"} 1.0',
        'yanmo_gpu_throttled{gpu="0",reason="software_power_cap"} 1.0',
        'yanmo_gpu_throttled{gpu="0",reason="hardware_slowdown"} 0.0',
    ):
        name, value = line.rsplit(" ", 1)
        found = [shown.rsplit(" ", 1)[1] for shown in text.splitlines() if shown.startswith(f"{name} ")]
        assert [float(one) for one in found] == [float(value)], line
    assert {f for f in (m.family("train") for m in GPU_METRICS) if f"# TYPE {f} " not in text} == set()


def test_what_a_card_does_not_support_is_left_out(driver):
    driver.unsupported = {
        *("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        *("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPowerUsage"),
    }
    _, text = watched(driver)
    shown = {m.name for m in GPU_METRICS if f"# TYPE {m.family('train')} " in text}
    assert shown == {"info", "power_limit_watts", "temperature_celsius"}


def test_of_two_cards_the_one_that_is_lost_shows_no_old_figures(driver):
    telemetry, text = watched(driver, fresh_seconds=0.1)
    assert 'yanmo_gpu_power_watts{gpu="1"}' in text
    driver.lost = {2}
    end = time.monotonic() + 60
    while 'yanmo_gpu_power_watts{gpu="1"}' in (text := telemetry.text()):
        assert time.monotonic() < end, text
        time.sleep(0.02)
    shown = [line for line in text.splitlines() if 'gpu="1"' in line]
    assert len(shown) == 1 and UUIDS[1] in shown[0], "which card it was"
    assert 'yanmo_gpu_power_watts{gpu="0"} 312.5' in text


def test_a_driver_that_hangs_keeps_no_scrape_and_its_old_figures_go(driver):
    telemetry, _ = watched(driver, old_seconds=5.5)  # a new one is made after five
    driver.hangs.clear()
    end = time.monotonic() + 60
    while "yanmo_gpu_utilization_ratio" in telemetry.text():
        assert time.monotonic() < end
        time.sleep(0.1)
    driver.hangs.set()
    wait_for(telemetry, "yanmo_gpu_utilization_ratio")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        *(("1", [2]), (f"{UUIDS[1]},0", [2, 1]), ("", []), ("-1", []), ("7", []), ("0, 1", [1, 2])),
        *(("0,-1,1", [1]), ("0,5,1", [1]), ("GPU-6666", [2]), ("GPU-3", []), ("MIG-1,0", [])),
    ],
)
def test_only_the_gpus_of_this_process_are_watched(driver, monkeypatch, visible, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.handle for gpu in Nvml(driver).gpus()] == expected


@pytest.mark.skipif(bool(ctypes.util.find_library("nvidia-ml")), reason="this machine has a driver")
def test_a_machine_without_a_driver_shows_nothing():
    assert Nvml.open() is None
    telemetry = Telemetry("train", GPU_METRICS)
    show_gpus(telemetry)
    assert "yanmo_gpu" not in telemetry.text()


def test_energy_is_summed_over_the_gpus(driver):
    meter = EnergyMeter(lambda: Nvml(driver))
    assert meter.joules() == 0.0 and meter._start == 5_000 + 10_000
    driver.unsupported = {"nvmlDeviceGetTotalEnergyConsumption"}
    assert meter.joules() is None
    assert EnergyMeter(lambda: None).joules() is None


def test_the_check_of_a_real_card_says_what_it_found(driver, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gpu_machine

    monkeypatch.setattr(gpu_machine.Nvml, "open", lambda: Nvml(driver))
    monkeypatch.setattr(gpu_machine.torch.cuda, "mem_get_info", lambda: (0, 80 << 30))
    measures = {m.name: m for m in gpu_machine._driver()}
    assert {m.status for m in measures.values()} == {"pass"}
    assert "temperature_celsius 64" in measures["NVML 575.57.08"].reason
    driver.unsupported = {"nvmlDeviceGetPowerUsage"}
    measures = {m.name: m for m in gpu_machine._driver()}
    assert measures["NVML, power_watts"].status == "skipped"
    assert "power_watts" in measures["NVML, not supported by this card"].reason
