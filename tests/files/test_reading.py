"""Reading: numbered ranges, strict text, pictures, stubs, and files that are far too large."""

from __future__ import annotations

import base64
import os
import struct
import sys
import tracemalloc
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import dataclasses

from tools import Bench

from sandboxd.errors import ImageUnseen, InvalidRequest, NotFound, NotText, SpecialFile, TooLarge


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_lines_are_numbered_and_the_rest_is_named(bench: Bench) -> None:
    (bench.work / "f").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    found = bench.read("f", offset=3, limit=2)
    assert found.text == "     3\tline 3\n     4\tline 4\n"
    assert (found.first_line, found.last_line, found.total_lines, found.has_more) == (
        3,
        4,
        10,
        True,
    )
    assert bench.read("f", offset=9, is_numbered=False).text == "line 9\nline 10\n"
    assert not bench.read("f").has_more
    with pytest.raises(InvalidRequest, match="has 10 lines"):
        bench.read("f", offset=11)
    with pytest.raises(InvalidRequest, match="counted from 1"):
        bench.read("f", offset=0)


def test_an_empty_file_and_one_without_a_last_line_end(bench: Bench) -> None:
    (bench.work / "empty").touch()
    found = bench.read("empty")
    assert (found.text, found.total_lines, found.is_unchanged) == ("", 0, False)
    (bench.work / "f").write_text("a\nb")
    found = bench.read("f", is_numbered=False)
    assert (found.text, found.total_lines) == ("a\nb\n", 2)


def test_an_identical_reading_is_answered_by_a_stub_that_names_the_ways_forward(
    bench: Bench,
) -> None:
    (bench.work / "f").write_text("a\nb\n")
    first = bench.read("f")
    stub = bench.read("f")
    assert (first.is_unchanged, stub.is_unchanged, stub.version) == (False, True, first.version)
    for way in ("offset", "again: true", "nothing in it has changed"):
        assert way in stub.text
    assert bench.read("f", again=True).text == first.text
    assert not bench.read("f", limit=1).is_unchanged
    # Our own write refreshes the ledger; what was read before is out of date all the same.
    bench.edit("f", "a", "A")
    assert bench.read("f").text == "     1\tA\n     2\tb\n"


def test_bad_bytes_are_named_with_their_place_and_never_replaced(bench: Bench) -> None:
    (bench.work / "f").write_bytes(b"ok\nbad \xe9 byte\nok\n")
    with pytest.raises(NotText, match="byte 0xe9 at offset 7, line 2") as told:
        bench.read("f")
    assert told.value.data == {"offset": 7, "line": 2}
    assert bench.read("f", limit=1).text == "     1\tok\n"
    with pytest.raises(NotText, match="offset 7, line 2"):
        bench.read("f", offset=2, limit=1)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x7fELF\x02\x01\x01\0", "an ELF program"),
        (b"\x1f\x8b\x08\0\0", "a gzip archive"),
        (b"PK\x03\x04....", "a zip archive"),
        (b"%PDF-1.7\n%\xe2", "a PDF document"),
        (b"\xff\xfea\0b\0", "UTF-16 text"),
        (b"text\nwith\0nul\n", "a binary file"),
    ],
)
def test_binaries_are_named(bench: Bench, data: bytes, kind: str) -> None:
    (bench.work / "f").write_bytes(data)
    with pytest.raises(NotText, match=kind):
        bench.read("f")


def test_what_is_no_file_is_refused(bench: Bench) -> None:
    (bench.work / "d").mkdir()
    with pytest.raises(SpecialFile, match="folder"):
        bench.read("d")
    with pytest.raises(NotFound, match="there is no file d/x"):
        bench.read("d/x")
    (bench.work / "f").touch()
    with pytest.raises(NotFound):
        bench.read("f/x")


def png(width: int, height: int, padding: int = 0) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"tEXt", b"x" * padding) + chunk(b"IEND", b"")


JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x20\x00\x10\x03" + bytes(9)
WEBP = b"RIFF\x20\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\x0f\0\0" + b"\x1f\0\0"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(16, 32), "image/png"),
        (b"GIF89a\x10\x00\x20\x00\0\0\0", "image/gif"),
        (JPEG, "image/jpeg"),
        (WEBP, "image/webp"),
    ],
)
def test_pictures_are_typed_and_sized(bench: Bench, data: bytes, kind: str) -> None:
    (bench.work / "f").write_bytes(data)
    image = bench.read("f").image
    assert image is not None
    assert (image.media_type, image.width, image.height) == (kind, 16, 32)
    assert base64.b64decode(image.data_b64) == data


def test_a_model_that_sees_no_pictures_is_told_so_and_large_ones_count_encoded(
    bench: Bench,
) -> None:
    (bench.work / "f").write_bytes(png(16, 32))
    blind = dataclasses.replace(bench.tools, sees_images=False)
    bench.tools = blind
    with pytest.raises(ImageUnseen, match=r"image/png, 16 x 32"):
        bench.read("f")
    bench.tools = dataclasses.replace(blind, sees_images=True)
    (bench.work / "f").write_bytes(png(16, 32, padding=4 * 1024 * 1024))
    with pytest.raises(TooLarge, match="once encoded") as told:
        bench.read("f")
    assert told.value.data is not None
    assert told.value.data["encoded_bytes"] > 5 * 1024 * 1024


def test_ten_lines_of_a_4_gb_sparse_file_cost_ten_lines(bench: Bench) -> None:
    path = bench.work / "f"
    path.write_text("".join(f"line {n}\n" for n in range(1, 21)))
    os.truncate(path, 4 * 1024**3)
    tracemalloc.start()
    try:
        found = bench.read("f", offset=5, limit=10)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.text.startswith("     5\tline 5\n")
    assert (found.last_line, found.total_lines, found.has_more) == (14, None, True)
    assert peak < 10_000_000
    with pytest.raises(TooLarge):
        bench.edit("f", "line 5", "x")


def test_a_line_without_an_end_is_cut_and_not_gathered(bench: Bench) -> None:
    with open(bench.work / "f", "wb") as file:
        for _ in range(20):
            file.write("é".encode() * 512 * 1024)
        file.write(b"\nnext\n")
    tracemalloc.start()
    try:
        found = bench.read("f", limit=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.text.startswith("     1\téé")
    assert "[+" in found.text
    assert len(found.text) < 3000
    assert peak < 10_000_000


def test_a_long_text_ends_at_the_limit_and_says_so(bench: Bench) -> None:
    (bench.work / "f").write_text("x" * 99 + "\n" + ("y" * 99 + "\n") * 9999)
    found = bench.read("f", limit=100_000)
    assert found.has_more
    assert found.last_line < 3000
    assert found.total_lines == 10_000


def test_the_private_tmp_is_the_session_s(bench: Bench) -> None:
    (bench.base / "tmp/note").write_text("mine\n")
    found = bench.read("/tmp/note", is_numbered=False)
    assert (found.text, found.shown) == ("mine\n", "/tmp/note")
