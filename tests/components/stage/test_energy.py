import time

from yanmo.stage.energy import EnergyMeter


def make_zone(folder, name, microjoules, top=1000):
    zone = folder / name
    zone.mkdir(parents=True)
    (zone / "energy_uj").write_text(f"{microjoules}\n")
    (zone / "max_energy_range_uj").write_text(f"{top}\n")
    return zone / "energy_uj"


def test_a_machine_without_counters_has_nothing_to_say(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert EnergyMeter(tmp_path / "none").joules() == {}


def test_packages_are_summed_and_their_parts_are_not_counted_twice(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    first = make_zone(tmp_path, "intel-rapl:0", 100, top=10**9)
    second = make_zone(tmp_path, "intel-rapl:1", 0, top=10**9)
    cores = make_zone(tmp_path, "intel-rapl:0:0", 0, top=10**9)
    meter = EnergyMeter(tmp_path)
    first.write_text("2000100")
    second.write_text("500000")
    cores.write_text("900000")
    assert meter.joules() == {"cpu": 2.5}
    meter.close()


def test_a_counter_that_wraps_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    zone = make_zone(tmp_path, "intel-rapl:0", 900)
    meter = EnergyMeter(tmp_path, period_seconds=0.01)
    for value in ("100", "950", "50"):  # 200, 850 and 100 microjoules on
        zone.write_text(value)
        meter.joules()
    assert abs(meter.joules()["cpu"] - 1150e-6) < 1e-12
    meter.close()


def test_counters_are_read_while_nobody_asks(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    zone = make_zone(tmp_path, "intel-rapl:0", 0)
    meter = EnergyMeter(tmp_path, period_seconds=0.005)
    zone.write_text("800")
    time.sleep(0.3)
    zone.write_text("100")  # it wrapped meanwhile; a reading at the end alone would give 100
    assert abs(meter.joules()["cpu"] - 1100e-6) < 1e-12
    meter.close()
