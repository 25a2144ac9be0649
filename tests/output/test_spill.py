"""The raw stream on disk: a prefix of what came, readable by bytes and lines, harmless when full."""

from __future__ import annotations

import os
import random
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.output.spill import Quota, Spill, make_room

BIG = 1 << 30


def filled(folder: Path, chunks: list[bytes], quota: int | Quota = BIG) -> Spill:
    spill = Spill(str(folder), quota)
    for chunk in chunks:
        spill.write(chunk)
    return spill


def test_the_file_is_private_and_holds_the_stream(tmp_path: Path) -> None:
    spill = filled(tmp_path, [b"one\ntw", b"o\nthree"])
    spill.close()
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == b"one\ntwo\nthree"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (spill.total_bytes, spill.total_lines, spill.kept_bytes) == (13, 2, 13)
    assert spill.output_id is not None
    assert spill.output_id in path.name


def test_a_link_in_the_place_of_the_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    (tmp_path / "known.raw").symlink_to(victim)
    monkeypatch.setattr("secrets.token_hex", lambda _: "known")
    spill = filled(tmp_path, [b"data"])
    assert not victim.exists()
    assert spill.output_id is None
    assert spill.failure == "File exists"


def test_lines_are_numbered_as_sed_numbers_them(tmp_path: Path) -> None:
    rng = random.Random(3)
    data = b"".join(b"%d %s\n" % (n, b"x" * rng.randint(0, 90)) for n in range(60_000)) + b"partial"
    spill = filled(tmp_path, [data[at : at + 9000] for at in range(0, len(data), 9000)])
    spill.close()
    for first, count in ((1, 3), (30_000, 5), (59_999, 10), (60_001, 1), (70_000, 3), (1, 60_001)):
        command = ["sed", "-n", f"{first},{first + count - 1}p", spill.path]
        told = subprocess.run(command, capture_output=True, check=True).stdout
        assert spill.read_lines(first, count) == told, (first, count)


def test_ranges_outside_the_stream_are_empty_or_cut(tmp_path: Path) -> None:
    spill = filled(tmp_path, [b"one\ntwo\n"])
    assert spill.read_bytes(4, 100) == b"two\n"
    assert spill.read_bytes(-5, 3) == b"one"
    assert spill.read_bytes(100, 5) == spill.read_bytes(0, 0) == spill.read_bytes(0, -1) == b""
    assert spill.read_lines(0, 1) == b"one\n"
    assert spill.read_lines(3, 1) == spill.read_lines(1, 0) == b""


def test_reading_while_it_is_written(tmp_path: Path) -> None:
    spill = filled(tmp_path, [b"one\n"])
    assert spill.read_lines(1, 9) == b"one\n"
    spill.write(b"two\n")
    assert spill.read_lines(2, 9) == b"two\n"


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(0, 300))
def test_what_is_kept_is_a_prefix_within_the_quota(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], quota: int
) -> None:
    data = b"".join(chunks)
    spill = filled(tmp_path_factory.mktemp("spill"), chunks, quota)
    spill.close()
    assert spill.read_bytes(0, BIG) == data[:quota]
    assert spill.kept_bytes == min(quota, len(data))
    assert (spill.total_bytes, spill.total_lines) == (len(data), data.count(b"\n"))
    assert (spill.failure is None) == (len(data) <= quota)


def test_spills_share_a_quota_and_give_it_back(tmp_path: Path) -> None:
    quota = Quota(10)
    first, second = filled(tmp_path, [b"1234567"], quota), filled(tmp_path, [b"abcdef"], quota)
    assert (first.kept_bytes, second.kept_bytes, quota.left_bytes) == (7, 3, 0)
    first.remove()
    assert quota.left_bytes == 7
    assert list(tmp_path.iterdir()) == [Path(second.path)]
    assert filled(tmp_path, [b"xyz"], quota).kept_bytes == 3


def test_a_quota_of_zero_keeps_nothing_and_counts(tmp_path: Path) -> None:
    spill = filled(tmp_path, [b"one\n", b"two\n"], 0)
    assert (spill.total_bytes, spill.kept_bytes, spill.failure) == (8, 0, "quota is used up")


def test_a_full_disk_harms_nothing(tmp_path: Path) -> None:
    """/dev/full stands for the file: every write to it is ENOSPC."""
    spill = Spill(str(tmp_path), BIG)
    spill.write(b"kept\n")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, spill._fd)
    os.close(full)
    spill.write(b"lost\n")
    spill.write(b"lost too\n")
    assert (spill.total_bytes, spill.total_lines, spill.kept_bytes) == (19, 3, 5)
    assert spill.failure == "No space left on device"
    spill.close()
    assert spill.read_lines(1, 9) == b"kept\n"


def test_a_folder_that_is_gone_harms_nothing(tmp_path: Path) -> None:
    spill = filled(tmp_path / "gone", [b"one\n"])
    assert (spill.total_bytes, spill.kept_bytes, spill.output_id) == (4, 0, None)
    assert spill.failure == "No such file or directory"
    spill.close()
    spill.remove()


def test_the_descriptor_is_not_inherited(tmp_path: Path) -> None:
    spill = filled(tmp_path, [])
    assert not os.get_inheritable(spill._fd)
    spill.close()


def test_the_oldest_streams_of_a_folder_make_room(tmp_path: Path) -> None:
    kept = []
    for number in range(5):
        spill = Spill(str(tmp_path), BIG)
        spill.write(b"x" * 100)
        spill.close()
        os.utime(spill.path, (number, number))
        kept.append(spill)
    make_room(str(tmp_path), 250)
    assert [os.path.exists(spill.path) for spill in kept] == [False, False, False, True, True]
    assert kept[4].read_bytes(0, 3) == b"xxx"
    make_room(str(tmp_path), 0)
    assert os.listdir(tmp_path) == []
    make_room(str(tmp_path / "missing"), 0)
