"""`yanmo nights save`: the pages on this disk are those of the store, and lead to each other."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from told import Told

from yanmo.nights.places import page_name
from yanmo.nights.publishing import rows_shown
from yanmo.tools.nights.command import main


def saved(folder: Path) -> dict[str, bytes]:
    return {f"nights/{p.relative_to(folder)}": p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def save(told: Told, folder: Path) -> int:
    return main(["save", "--store", told.uri, "--to", str(folder)])


class Links(HTMLParser):
    def __init__(self, page: Path) -> None:
        super().__init__()
        self.page = page
        self.found: set[Path] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {self.page.parent / unquote(value or "") for name, value in attrs if name == "href"}


def test_the_folder_has_all_pages_and_every_link_of_them_is_there(told: Told, tmp_path: Path) -> None:
    for number in range(14):  # two months
        told.verdict(number) if number % 3 else told.failure(number)
    told.failure(0, channel="weekly")
    folder = tmp_path / "deep" / "pages"
    assert save(told, folder) == 0
    assert saved(folder) == told.pages()
    reached, waiting = set[Path](), [folder / "index.html"]
    while waiting:
        page = waiting.pop().resolve()
        if page in reached:
            continue
        assert page.is_file(), page
        reached.add(page)
        waiting += Links(page).found if page.suffix == ".html" else ()
    assert {f"nights/{page.relative_to(folder)}" for page in reached} == set(told.pages())


def test_saved_again_only_what_changed_is_fetched_also_where_it_is_as_long(
    told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told.verdict(0)
    told.failure(1, "disk A full")
    assert save(told, tmp_path / "pages") == 0
    capsys.readouterr()
    assert save(told, tmp_path / "pages") == 0
    assert capsys.readouterr().out.startswith("saved 4 pages"), "index, month, feed and the channels"
    before = (tmp_path / "pages/nightly/2026-01-21-r1.html").stat().st_size
    told.failure(1, "disk B full")
    assert save(told, tmp_path / "pages") == 0
    assert (tmp_path / "pages/nightly/2026-01-21-r1.html").stat().st_size == before
    assert saved(tmp_path / "pages") == told.pages()


def test_a_bucket_is_saved_as_a_folder_is(on_s3: Told, tmp_path: Path) -> None:
    on_s3.verdict(0)
    on_s3.failure(1)
    assert save(on_s3, tmp_path / "pages") == 0 and save(on_s3, tmp_path / "pages") == 0
    assert saved(tmp_path / "pages") == on_s3.pages()


def test_what_others_put_below_nights_stays_where_it_is(told: Told, tmp_path: Path) -> None:
    told.verdict(0)
    for name in ("nights/secret.html", "nights/nightly/notes.html", "nights/nightly/a/b.html"):
        told.store.create(name, b"of others")
    assert save(told, tmp_path / "pages") == 0
    assert saved(tmp_path / "pages") == {n: d for n, d in told.pages().items() if d != b"of others"}


def test_a_store_without_nights_says_what_makes_the_first(told: Told, tmp_path: Path) -> None:
    told.store.create("pointers/x/y.json", b"{}")
    command = [sys.executable, "-m", "yanmo.cli", "nights", "save", "--store", told.uri]
    done = subprocess.run([*command, "--to", str(tmp_path / "p")], capture_output=True, text=True)
    assert done.returncode == 65
    assert "has no nights yet: a run of a pipeline makes the first page" in done.stderr
    assert main(["save", "--store", told.uri]) == 64, "--to is required"


def test_a_file_in_the_place_of_the_folder_is_left(told: Told, tmp_path: Path) -> None:
    told.verdict(0)
    (tmp_path / "pages").write_text("mine")
    assert save(told, tmp_path / "pages") != 0
    assert (tmp_path / "pages").read_text() == "mine"


def test_a_disk_that_fills_up_leaves_no_half_page_and_the_same_command_goes_on(
    told: Told, tmp_path: Path
) -> None:
    """Files of 16 kB at most: the page of the verdict is longer, all others are shorter."""
    told.verdict(0)
    folder = tmp_path / "pages"
    command = [sys.executable, "-m", "yanmo.cli", "nights", "save", "--store", told.uri, "--to", str(folder)]

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, 16_384))

    full = subprocess.run(command, capture_output=True, text=True, preexec_fn=small)
    assert full.returncode not in (0, 70), full.stderr
    row = rows_shown(told.store, "nightly")[0]
    assert not (folder / page_name("nightly", row).removeprefix("nights/")).exists()
    assert all(name in told.pages() for name in saved(folder)), os.listdir(folder)
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert saved(folder) == told.pages()
