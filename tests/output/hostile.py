"""Bytes that are meant to cost as much as possible, of any size."""

from __future__ import annotations


def hostile(size: int) -> dict[str, bytes]:
    """By name; those that ask for rows of 4,096 columns are an eighth of the size."""

    def fill(unit: str | bytes) -> bytes:
        data = unit.encode() if isinstance(unit, str) else unit
        return (data * (size // len(data) + 1))[:size]

    return {
        "ESC": fill("\x1b"),
        "CSI": fill("\x1b["),
        "a parameter without end": b"\x1b[" + fill("1"),
        "parameters without end": b"\x1b[" + fill("1;"),
        "OSC without end": b"\x1b]0;" + fill("x"),
        "many OSC without end": fill("\x1b]x"),
        "DCS with ESC inside": fill("\x1bPq\x1bx"),
        "C1": fill("\u009b"),
        "CR": fill("\r"),
        "BS": fill("x\b\b"),
        "BEL": fill("\x07"),
        "LF": fill("\n"),
        "combining marks": b"Z" + fill("\u0301"),
        "wide characters": fill("你"),
        "wide frames": fill("你好\r"),
        "restart points": fill("\r\x1b[Kx"),
        "almost restart points": fill("\x1b[K\r "),
        "REP": fill("x\x1b[4096b\r"),
        "REP on lines": fill("x\x1b[4096b\n")[: size // 8],
        "ICH": fill("x\r\x1b[4096@"),
        "DCH": fill("x\x1b[4096G\x1b[1P"),
        "ECH": fill("\x1b[4096Gx\r\x1b[4096X"),
        "padding": fill("\x1b[4096Gx\n")[: size // 8],
        "padding and erasing": fill("\x1b[4096Gx\r\x1b[K"),
        "up": fill("\x1b[A"),
        "up and down lines": fill("x\n\x1b[A\x1b[A\n\n"),
        "rows up on lines": fill("\x1b[31Ax\n"),
        "rows down": fill("\x1b[99B\n"),
        "home and clear": fill("\x1b[H\x1b[2J"),
        "index": fill("\x1bD\x1bM\x1bE"),
        "index on wide rows": fill("\x1b[4096Gx\x1bD")[: size // 8],
        "save and restore": fill("\x1b7\x1b[5C\x1b8"),
        "tabs": fill("\t\x1b[Z"),
        "broken UTF-8": fill(b"\xe2\x82"),
        "NUL": fill("x\0"),
    }
