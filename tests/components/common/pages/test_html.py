"""The template engine of every page."""

from pathlib import Path

from yanmo.common.pages.html import render


def test_a_template_compiled_before_takes_the_filters_and_values_of_each_page(tmp_path: Path) -> None:
    template = tmp_path / "one.html.jinja"
    template.write_text("{{ name | loud }}, {{ name | count }}", encoding="utf-8")
    for extra in ("!", "?"):
        page = render(template, {"loud": lambda text, extra=extra: text + extra, "count": len}, name="<b>")
        assert page == f"&lt;b&gt;{extra}, 3"


def test_templates_of_one_name_in_two_folders_or_changed_are_told_apart(tmp_path: Path) -> None:
    for folder, text in (("a", "one"), ("b", "two"), ("a", "three")):
        template = tmp_path / folder / "page.html.jinja"
        template.parent.mkdir(exist_ok=True)
        template.write_text(text, encoding="utf-8")
        assert render(template, {}) == text
