"""/metrics as a scrape sees it."""

import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.request import ProxyHandler, build_opener

from yanmo.stage.exporter import Telemetry

open_directly = build_opener(ProxyHandler({})).open


def test_metrics_are_served_without_a_look_up_of_the_machines_name(monkeypatch, capfd):
    def asked(*args):
        raise AssertionError(f"asks a name server for {args}")

    for name in ("getfqdn", "gethostbyaddr", "gethostbyname", "gethostbyname_ex"):
        monkeypatch.setattr(socket, name, asked)
    with Telemetry("train", run_id="night-7") as telemetry:
        telemetry.gauge("loss", "Loss").set(3.5)
        address = f"http://127.0.0.1:{telemetry._server.server_port}/metrics"
        with ThreadPoolExecutor(4) as pool:
            bodies = [r.read().decode() for r in pool.map(open_directly, [address] * 8)]
    assert all("yanmo_train_loss 3.5" in body for body in bodies)
    assert 'run_id="night-7"' in bodies[0]
    assert capfd.readouterr() == ("", ""), "a scrape is nothing to tell"


def test_a_busy_port_is_replaced_by_a_free_one(caplog):
    with Telemetry("train") as first, Telemetry("train", port=first._server.server_port) as second:
        assert second._server.server_port != first._server.server_port
        assert "taking a free one" in caplog.text
