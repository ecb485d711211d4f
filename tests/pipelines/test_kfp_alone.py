"""kfp is imported without its client where pipelines run on this machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

OF_CLIENTS = "sorted({'kubernetes', 'kfp_server_api', 'kfp.client'} & set(sys.modules))"


def said(*lines: str) -> list[str]:
    code = "\n".join(["import sys", "from yanmo_pipelines.kfp_alone import without_client", *lines])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_what_runs_pipelines_here_brings_no_client() -> None:
    runner = "    import yanmo_pipelines.local_runner, kfp.local"
    assert said("with without_client():", runner, f"print({OF_CLIENTS})") == ["[]"]


def test_whoever_asks_for_the_client_later_gets_it() -> None:
    asked = ("import kfp", "print(hasattr(kfp, 'Client'))", "from kfp.client import Client", "print(Client)")
    before, client = said("with without_client():", "    from kfp import dsl", *asked)
    assert before == "False" and client == "<class 'kfp.client.client.Client'>"


@pytest.mark.parametrize("module", ["kfp", "kfp.client"])
def test_a_client_that_is_there_already_stays(module: str) -> None:
    asked = ("with without_client():", "    from kfp import dsl", "import kfp.client", "print(kfp.Client)")
    assert said(f"import {module}", *asked) == ["<class 'kfp.client.client.Client'>"]
