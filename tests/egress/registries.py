"""A package index and a package registry of the test's own, each with one package, over http."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import tarfile
import zipfile

PACKAGE = "tiny-thing"
WHEEL = "tiny_thing-1.0-py3-none-any.whl"
TARBALL = "tiny-thing-1.0.0.tgz"


def wheel() -> bytes:
    """A wheel with one module: PEP 427."""
    info = "tiny_thing-1.0.dist-info/"
    files = {
        "tiny_thing.py": "word = 'installed'\n",
        info + "METADATA": "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n",
        info
        + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[info + "RECORD"] = "".join(f"{name},,\n" for name in [*files, info + "RECORD"])
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


def tarball() -> bytes:
    """A package as `npm pack` makes it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in {
            "package/package.json": json.dumps(
                {"name": PACKAGE, "version": "1.0.0", "main": "index.js"}
            ),
            "package/index.js": "module.exports = 'installed'\n",
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


class Registry(http.server.BaseHTTPRequestHandler):
    """Serves both kinds; where the files lie is said by the name that the client asked for."""

    protocol_version = "HTTP/1.1"
    wheel = wheel()
    tarball = tarball()

    def do_GET(self) -> None:
        pages = {
            f"/simple/{PACKAGE}/": (self._links, "text/html"),
            f"/files/{WHEEL}": (lambda: self.wheel, "application/zip"),
            f"/{PACKAGE}": (self._packument, "application/json"),
            f"/-/{TARBALL}": (lambda: self.tarball, "application/octet-stream"),
        }
        page, kind = pages.get(self.path, (None, ""))
        body = page() if page is not None else b""
        self.send_response(200 if page is not None else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _links(self) -> bytes:
        digest = hashlib.sha256(self.wheel).hexdigest()
        return f'<a href="/files/{WHEEL}#sha256={digest}">{WHEEL}</a>'.encode()

    def _packument(self) -> bytes:
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(self.tarball).digest()).decode()
        dist = {"tarball": f"http://{self.headers['Host']}/-/{TARBALL}", "integrity": integrity}
        version = {"name": PACKAGE, "version": "1.0.0", "main": "index.js", "dist": dist}
        return json.dumps(
            {"name": PACKAGE, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        ).encode()

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""
