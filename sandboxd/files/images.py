"""What kind of picture a file is and how large, from its first bytes alone.

Sources: the PNG, GIF, JPEG (ITU T.81, annex B) and WebP container specifications.
"""

from __future__ import annotations

import base64
import struct

from sandboxd.errors import ImageUnseen, TooLarge
from sandboxd.files.guard import Place
from sandboxd.model import Image

MAX_ENCODED = 5 * 1024 * 1024
"""Of the base64 text, which is what travels and what models limit."""
_SIZELESS_MARKERS = {0x01, *range(0xD0, 0xDA)}
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


def media_type(head: bytes) -> str | None:
    """The type of a picture by its signature; None for everything else."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return None


def size(head: bytes) -> tuple[int | None, int | None]:
    """Width and height in pixels, where the first bytes say them."""
    kind = media_type(head)
    try:
        if kind == "image/png":
            width, height = struct.unpack(">II", head[16:24])
            return width, height
        if kind == "image/gif":
            width, height = struct.unpack("<HH", head[6:10])
            return width, height
        if kind == "image/jpeg":
            return _jpeg_size(head)
        if kind == "image/webp":
            return _webp_size(head)
    except (struct.error, IndexError):
        pass
    return None, None


def _jpeg_size(head: bytes) -> tuple[int | None, int | None]:
    place = 2
    while place + 9 < len(head) and head[place] == 0xFF:
        marker = head[place + 1]
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", head[place + 5 : place + 9])
            return width, height
        if marker in _SIZELESS_MARKERS:
            place += 2
        else:
            place += 2 + int(struct.unpack(">H", head[place + 2 : place + 4])[0])
    return None, None


def _webp_size(head: bytes) -> tuple[int | None, int | None]:
    form = head[12:16]
    if form == b"VP8X":
        return (
            1 + int.from_bytes(head[24:27], "little"),
            1 + int.from_bytes(head[27:30], "little"),
        )
    if form == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if form == b"VP8 ":
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None, None


def check(head: bytes, total_bytes: int, place: Place, *, is_seen: bool | None) -> None:
    """Raises ImageUnseen when the caller's model sees no pictures, TooLarge by the encoded size."""
    kind = media_type(head)
    width, height = size(head)
    pixels = f", {width} x {height}" if width and height else ""
    if is_seen is False:
        raise ImageUnseen(
            f"{place.shown} is a picture ({kind}{pixels}, {total_bytes} bytes) and the model that "
            "asks sees none",
            hint="use a command that describes or converts it",
            path=place.shown,
            data={"media_type": kind, "width": width, "height": height, "bytes": total_bytes},
        )
    encoded = 4 * ((total_bytes + 2) // 3)
    if encoded > MAX_ENCODED:
        raise TooLarge(
            f"{place.shown} is a picture ({kind}{pixels}) of {encoded} bytes once encoded; "
            f"{MAX_ENCODED} are possible",
            hint="make it smaller with a command",
            path=place.shown,
            data={"encoded_bytes": encoded, "limit": MAX_ENCODED},
        )


def image_of(data: bytes) -> Image:
    """The picture, ready to be shown."""
    width, height = size(data[:65536])
    return Image(
        media_type=media_type(data[:16]) or "application/octet-stream",
        width=width,
        height=height,
        total_bytes=len(data),
        data_b64=base64.b64encode(data).decode("ascii"),
    )
