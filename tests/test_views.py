"""Results show themselves: as text without quotes, in notebooks, and as figures."""

from dataclasses import dataclass

from advfrontier.views import Shown, Text


def test_text_is_shown_without_quotes():
    text = Text("two\nlines")
    assert repr(text) == "two\nlines"
    assert text == "two\nlines"


def test_drawing_functions_are_found_by_their_names(monkeypatch):
    calls = []

    def draw(*content, **options):
        calls.append((content, options))
        return "drawn"

    for name in ("text", "html"):
        monkeypatch.setattr(f"advfrontier.report.views.{name}", draw)

    @dataclass
    class Result(Shown):
        value: int = 1

    result = Result()
    assert result.summary() == "drawn"
    assert result._repr_html_() == "drawn"
    assert calls == [((result,), {}), ((result,), {})]
