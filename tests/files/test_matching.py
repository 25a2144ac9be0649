"""The ladder: each rung finds what it is for, nothing outside a match changes, refusals show lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.errors import AmbiguousMatch, InvalidRequest, NoMatch, OversizedMatch, Refusal
from sandboxd.files.matching import Edit, Matched, applied, find


@pytest.mark.parametrize(
    ("text", "old", "new", "strategy", "after"),
    [
        ("a\nb\nc\n", "b", "B", "exact", "a\nB\nc\n"),
        ("a\r\nb\r\nc\r\n", "a\nb", "A\nB", "line_endings", "A\r\nB\r\nc\r\n"),
        ("a\nb\n", "a\r\nb", "A\r\nB", "line_endings", "A\nB\n"),
        ("def f():\n    x\n", "    12\tdef f():\n    13\t    x", "    12\tdef g():\n    13\t    y", "line_numbers", "def g():\n    y\n"),
        ("a  \nb\n", "a\nb", "A\nB", "trailing_blanks", "A\nB\n"),
        ("a\nb\n", "a   \nb", "A\nB", "trailing_blanks", "A\nB\n"),
        ("x =   1\n", "x = 1", "x = 2", "blanks", "x = 2\n"),
        ("say “hi” – now\n", 'say "hi" - now', "say no", "punctuation", "say no\n"),
        ("it's ... fine\n", "it’s … fine", "ok", "punctuation", "ok\n"),
        ("    if x:\n        y()\n", "if x:\n    y()", "if x:\n    z()", "indentation", "    if x:\n        z()\n"),
        ("\tif x:\n\t\ty()\n", "if x:\n    y()\n", "if x:\n    z()\n    w()\n", "indentation", "\tif x:\n\t\tz()\n\t\tw()\n"),
    ],
)  # fmt: skip
def test_each_rung_finds_what_it_is_for(
    text: str, old: str, new: str, strategy: str, after: str
) -> None:
    assert applied(text, Edit(old, new), "f") == (after, strategy)


def test_the_first_rung_that_finds_something_decides() -> None:
    assert applied("a b\na  b\n", Edit("a b", "c"), "f") == ("c\na  b\n", "exact")


def test_ambiguous_is_refused_with_count_and_real_lines() -> None:
    found = find("x = 1\ny\nx = 1\n" * 4, Edit("x = 1", "x = 2"), "f")
    assert isinstance(found, AmbiguousMatch)
    assert found.data is not None
    assert found.data["count"] == 8
    assert found.data["lines"][:2] == ["1: x = 1", "3: x = 1"]
    assert "8 times" in found.message


def test_replace_all_replaces_every_place() -> None:
    assert applied("a b a\na", Edit("a", "c", replace_all=True), "f") == ("c b c\nc", "exact")


def test_missing_shows_the_nearest_lines() -> None:
    text = "".join(f"value_{n} = compute({n})\n" for n in range(50))
    found = find(text, Edit("value_30 = compute(31)", "x"), "f")
    assert isinstance(found, NoMatch)
    assert found.data is not None
    assert "value_30 = compute(30)" in found.data["nearest"]
    assert "line 31" in found.hint


def test_an_edit_that_was_made_already_is_told() -> None:
    found = find("new line\n", Edit("old line", "new line"), "f")
    assert isinstance(found, NoMatch)
    assert "already" in found.hint


def test_an_oversized_match_is_passed_over_and_the_next_rung_still_runs() -> None:
    wide = "a" + " " * 2000 + "b\n"
    found = find(wide, Edit("a b", "c"), "f")
    assert isinstance(found, OversizedMatch)
    assert found.data is not None
    assert found.data["count"] >= 1
    # Beside the oversized candidate a later rung's is the right size.
    assert applied(wide + "a\u2003b\n", Edit("a b", "c"), "f") == (wide + "c\n", "punctuation")


def test_nothing_to_do_is_refused() -> None:
    assert isinstance(find("a", Edit("a", "a"), "f"), InvalidRequest)


@pytest.mark.parametrize(
    "old", ["(a+)+$", " " * 3000, "\n" * 500, "a " * 2000, "é’" * 500, "\t\n" * 300]
)
def test_hostile_texts_take_no_longer_than_their_length(old: str) -> None:
    text = ("a " * 5000 + "\n") * 3 + "\n" * 5000
    find(text, Edit(old, "x"), "f")


_WORDS = st.lists(
    st.sampled_from(["a", "b", " ", "  ", "\t", "\n", "\r\n", "\n\n", "“", '"', "'", "’", "-", "–", "…", "..", ".", "1\t", "{", "\u00a0", "é"]),
    max_size=24,
).map("".join)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(text=_WORDS, old=_WORDS, new=_WORDS, every=st.booleans())
def test_edit_ladder_never_changes_bytes_outside_the_match(
    text: str, old: str, new: str, every: bool
) -> None:
    if not old:
        return
    found = find(text, Edit(old, new, every), "f")
    outcome = applied(text, Edit(old, new, every), "f")
    if isinstance(found, Refusal):
        assert isinstance(outcome, Refusal)
        return
    assert isinstance(found, Matched)
    assert not isinstance(outcome, Refusal)
    after, rest, position = outcome[0], "", 0
    for match in found.matches:
        assert position <= match.start < match.end <= len(text)
        before = text[position : match.start]
        rest += before + match.replacement
        position = match.end
    assert after == rest + text[position:]
    assert len(found.matches) == 1 or every


@settings(max_examples=60, deadline=None)
@given(before=_WORDS, old=_WORDS, after=_WORDS, new=_WORDS)
def test_what_stands_there_exactly_once_is_what_is_replaced(
    before: str, old: str, after: str, new: str
) -> None:
    text = before + old + after
    if old and text.count(old) == 1 and text.find(old, text.find(old) + 1) < 0 and old != new:
        assert applied(text, Edit(old, new), "f") == (before + new + after, "exact")
