"""Reading kept output back: by line as sed counts, by byte, and nothing but our own files."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from sandboxd.daemon.kept_output import PART_BYTES, read_part
from sandboxd.errors import InvalidRequest, OutputUnknown
from sandboxd.protocol.messages import OutputRead

DATA = b"".join(b"line %d\n" % number for number in range(1, 1001)) + b"rest"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "00ff.raw").write_bytes(DATA)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "aa.raw").symlink_to(tmp_path / "secret")
    return str(tmp_path)


def read(folder: str, **params: object) -> str | None:
    return read_part(folder, OutputRead(output_id="00ff", **params)).text  # type: ignore[arg-type]


def test_lines_are_counted_from_one(folder: str) -> None:
    assert read(folder, from_line=10, count=2) == "line 10\nline 11\n"
    assert read(folder, from_line=1000) == "line 1000\nrest"
    assert read(folder, from_line=5000) == ""
    assert read(folder, count=0) == ""


def test_bytes_are_counted_from_zero(folder: str) -> None:
    assert read(folder, from_byte=0, count=6) == "line 1"
    assert read(folder, from_byte=len(DATA) - 4) == "rest"
    assert read(folder, from_byte=10**9) == ""


def test_totals_are_those_of_the_whole(folder: str) -> None:
    part = read_part(folder, OutputRead(output_id="00ff", count=1))
    assert (part.total_bytes, part.total_lines) == (len(DATA), 1000)


def test_text_is_rendered_and_raw_is_not(tmp_path: Path) -> None:
    (tmp_path / "01.raw").write_bytes(b"10%\r100%\n")
    text = read_part(str(tmp_path), OutputRead(output_id="01"))
    raw = read_part(str(tmp_path), OutputRead(output_id="01", raw=True))
    assert (text.text, text.bytes_b64) == ("100%\n", None)
    assert base64.b64decode(raw.bytes_b64 or "") == b"10%\r100%\n"


def test_one_answer_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "02.raw").write_bytes(b"x" * (3 * PART_BYTES))
    for params in (OutputRead(output_id="02"), OutputRead(output_id="02", from_byte=5)):
        part = read_part(str(tmp_path), params)
        assert part.text is not None
        assert len(part.text) <= PART_BYTES


@pytest.mark.parametrize("name", ["", "..", "../00ff", "00ff.raw", "secret", "aa", "ff", "00FF"])
def test_only_names_that_we_gave_out_are_opened(folder: str, name: str) -> None:
    with pytest.raises(OutputUnknown):
        read_part(folder, OutputRead(output_id=name))


@pytest.mark.parametrize(
    "params", [{"from_line": 0}, {"from_byte": -1}, {"count": -1}, {"from_line": 1, "from_byte": 1}]
)
def test_what_cannot_be_meant_is_refused(folder: str, params: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest):
        read(folder, **params)
