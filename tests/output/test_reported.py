"""What has gone wrong elsewhere with captured output, each as it was reported in public."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess

import pytest

from sandboxd.model import Captured
from sandboxd.output.pump import Pump
from sandboxd.output.renderer import LineRenderer, render
from sandboxd.output.ring import Ring
from tests.output.resident import grown_bytes


def captured(*chunks: bytes) -> Captured:
    ring = Ring()
    for chunk in chunks:
        ring.feed(chunk)
    return ring.snapshot()


def pumped(script: str) -> Captured:
    """The output of a real shell through a real pipe."""

    async def run() -> Captured:
        child = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE)
        assert child.stdout is not None
        ring = Ring()
        pump = Pump(os.dup(child.stdout.fileno()), [ring.feed])
        child.stdout.close()
        async with asyncio.timeout(60):
            await pump.drained()
        child.wait()
        return ring.snapshot()

    return asyncio.run(run())


# --------------------------------------------------------------------------- lost or uncounted


def test_early_and_late_output_are_both_there_live_and_in_the_end() -> None:
    renderer = LineRenderer()
    live = [*renderer.feed(b"early\n"), *renderer.feed(b"late\n")]
    assert live == ["early", "late"]
    assert captured(b"early\n", b"late\n").text == "early\nlate\n"


def test_what_was_dropped_of_megabytes_is_stated_and_is_no_constant() -> None:
    small = captured(b"some output\n" * 100_000)
    large = captured(b"some output\n" * 300_000)
    assert large.omitted_bytes - small.omitted_bytes == 200_000 * 12
    assert f"[{large.omitted_bytes} bytes, {large.omitted_lines} lines omitted]" in large.text


def test_a_few_very_long_lines_do_not_push_out_the_error_at_the_end() -> None:
    shown = captured(*[b"x" * 400_000 + b"\n"] * 5, b"error: the cause\n")
    assert shown.text.endswith("[+395904]\nerror: the cause\n")
    assert shown.omitted_bytes == 0


def test_polling_during_a_flood_stays_bounded_and_shows_the_gap() -> None:
    ring = Ring()
    for turn in range(60):
        ring.feed(b"flood %d\n" % turn * 20_000)
        if turn > 10:
            shown = ring.snapshot()
            assert len(shown.text) < 67_000
            assert f"{shown.omitted_lines} lines omitted" in shown.text


def test_the_failure_summary_at_the_end_survives() -> None:
    noise = b"tests/test_module.py::test_case PASSED\n" * 50_000
    summary = b"FAILED tests/test_x.py::test_y - AssertionError\n1 failed, 50000 passed\n"
    assert captured(noise, summary).text.endswith("PASSED\n" + summary.decode())


def test_the_notice_says_how_many_lines_and_appears_only_when_lines_are_missing() -> None:
    some = pumped("seq 1 5000")
    assert (some.total_lines, some.omitted_lines) == (5000, 0)
    assert "omitted" not in some.text
    many = pumped("seq 1 500000")
    assert many.total_lines == 500_000
    assert f"{many.omitted_lines} lines omitted" in many.text
    assert many.text.count("\n") - 1 + many.omitted_lines == 500_000


def test_forty_kilobytes_under_the_limit_are_whole() -> None:
    data = b"".join(b"%03d " % n + b"y" * 200 + b"\n" for n in range(200))
    assert captured(data).text == data.decode()


def test_nothing_printed_is_empty_and_says_so_by_its_counts() -> None:
    assert captured() == Captured(text="", total_bytes=0, total_lines=0)


# --------------------------------------------------------------------------- memory, deadlock


def test_memory_stays_flat_under_a_flood() -> None:
    """Many kinds of flood, 400 MB in all, in a process of its own."""
    program = """
from sandboxd.output.ring import Ring
chunks = [b"y\\n" * 65536, b"/usr/lib/python3/dist-packages/x.py\\n" * 4000, b"z" * 131072,
          b"\\r 50% |####    |" * 9000, b"\\x1b[32mok\\x1b[0m line\\n" * 8000, b"\\0\\xff\\x01" * 40000]
rings = [Ring() for _ in chunks]
def feed(times):
    for _ in range(times):
        for ring, chunk in zip(rings, chunks):
            ring.feed(chunk)
feed(40)
"""
    assert grown_bytes(program, "feed(460)") < 16 << 20


def test_the_work_for_a_chunk_does_not_grow_with_history() -> None:
    """Counted, not timed: what the ring keeps is as large after 200 MB as after 20."""
    ring = Ring()
    sizes = []
    for _ in range(10):
        for _ in range(80):
            ring.feed(b"a line of output like any other\n" * 8000)
        sizes.append(ring.held_bytes)
    assert max(sizes) < 2 << 20


def test_more_than_a_pipe_holds_before_exit_is_no_deadlock() -> None:
    assert pumped("head -c 300000 /dev/zero | tr '\\0' 'a'; echo; echo end").total_bytes == 300_005


# --------------------------------------------------------------------------- UTF-8


def test_a_character_split_between_reads_is_whole() -> None:
    assert captured(b"cleanup \xe2", b"\x80\x94 end").text == "cleanup — end"


def test_a_character_that_arrives_byte_by_byte_is_whole() -> None:
    renderer = LineRenderer()
    lines = [line for byte in (b"\xe2", b"\x89", b"\xa4", b"\n") for line in renderer.feed(byte)]
    assert lines == ["≤"]


def test_a_character_across_a_read_of_4096_bytes_is_whole() -> None:
    data = b"a" * 4095 + "é".encode() + b"\n"
    assert captured(data[:4096], data[4096:]).text == data.decode()


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 4096])
def test_fifty_thousand_characters_in_fifty_thousand_out(size: int) -> None:
    data = ("你" * 100 + "\n").encode() * 500
    ring = Ring(200_000, 0)
    for at in range(0, len(data), size):
        ring.feed(data[at : at + size])
    shown = ring.snapshot().text
    assert shown.count("你") == 50_000
    assert "\ufffd" not in shown


def test_box_drawing_is_not_broken_by_any_cut() -> None:
    row = ("│" + "─" * 78 + "│\n").encode()
    for cut in range(len(row)):
        assert captured(row[:cut], row[cut:]).text == row.decode()


# --------------------------------------------------------------------------- progress


def frames(template: str, count: int) -> bytes:
    return "".join(template.format(n) for n in range(1, count + 1)).encode()


def test_git_frames_leave_the_final_line() -> None:
    data = frames("\rReceiving objects: {0:3}% ({0}/100)", 100) + b", done.\n"
    assert captured(data).text == "Receiving objects: 100% (100/100), done.\n"


def test_ninja_and_wget_frames_leave_the_final_line() -> None:
    assert render(frames("\r[{0}/100] Building\x1b[K", 100) + b"\n") == "[100/100] Building\n"
    assert render(frames("\r file {0:3}%[==>  ]  1.2K --.-KB/s", 100) + b"\n").count("file") == 1


def test_docker_pull_frames_do_not_pile_up() -> None:
    start = b"one: Waiting\ntwo: Waiting\nthree: Waiting\n"
    steps = b"".join(
        b"\x1b[%dA\x1b[2K\r%s: Downloading %d%%\x1b[%dB\r" % (up, name, step, up)
        for step, (up, name) in itertools.product(
            range(101), ((3, b"one"), (2, b"two"), (1, b"three"))
        )
    )
    assert captured(start + steps).text == "".join(
        f"{name}: Downloading 100%\n" for name in ("one", "two", "three")
    )


def test_a_menu_drawn_again_does_not_stack() -> None:
    menu = b"> a\n  b\n  c\n"
    assert captured(menu, *[b"\x1b[3A\x1b[J" + menu] * 20).text == menu.decode()


@pytest.mark.parametrize("size", [1, 7, 4096, 65536])
def test_five_thousand_spinner_frames_are_one_line(size: int) -> None:
    glyphs = "⠋⠙⠹⠸"
    data = "".join(f"\r{glyphs[n % 4]} work" for n in range(5000)).encode() + b"\r\x1b[Kdone\n"
    ring = Ring()
    for at in range(0, len(data), size):
        ring.feed(data[at : at + size])
    assert ring.snapshot().text == "done\n"


# --------------------------------------------------------------------------- sequences


def test_a_link_ended_by_bel_leaves_its_text() -> None:
    assert render(b"see \x1b]8;;https://x.y/z\x07the docs\x1b]8;;\x07 now") == "see the docs now"


def test_a_link_with_a_parenthesis_in_its_address_leaves_its_text() -> None:
    assert render(b"\x1b]8;;file:///a(b)c\x1b\\name\x1b]8;;\x1b\\") == "name"


def test_a_title_split_over_reads_leaves_nothing() -> None:
    data = b"a\x1b]0;a long title\x07b\n"
    for first, second in itertools.combinations(range(len(data)), 2):
        assert captured(data[:first], data[first:second], data[second:]).text == "ab\n"


def test_a_bare_introducer_takes_only_its_own_line() -> None:
    assert captured(b"before\n\x1b]", b"\nafter\n").text == "before\n\nafter\n"


def test_modes_colon_colours_bare_terminators_and_c1_leave_nothing() -> None:
    data = "\x1b[?25la\x1b[38:2::9:9:9mb\x1b\\c\u009b1md\u009c".encode()
    assert render(data) == "abcd"


def test_a_huge_repeat_is_bounded() -> None:
    assert len(render(b"x\x1b[100000000b")) == 4096


def test_a_modest_repeat_is_exact() -> None:
    assert render(b"x\x1b[100b") == "x" * 101


def test_inserting_or_deleting_two_billion_cells_is_bounded() -> None:
    assert render(b"abc\r\x1b[2147483647@X") == "X"
    assert render(b"abc\r\x1b[2147483647PX") == "X"


def test_overwriting_a_full_width_character_shifts_nothing() -> None:
    assert render("コンニ\rX".encode()) == "X ンニ"
