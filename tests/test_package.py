"""What is shipped: wheel and sdist hold the data, the licence and the command, and no more."""

from __future__ import annotations

import email.parser
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import sandboxd

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which hatchling, without any index, built both archives."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Iterator[zipfile.ZipFile]:
    (file,) = built.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        yield archive


@pytest.fixture(scope="module")
def sdist_names(built: Path) -> set[str]:
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def files_below(folder: str, pattern: str = "*") -> set[str]:
    found = (ROOT / folder).rglob(pattern)
    return {str(f.relative_to(ROOT)) for f in found if f.is_file() and "__pycache__" not in f.parts}


def test_wheel_holds_exactly_the_package_and_its_data(wheel: zipfile.ZipFile) -> None:
    code = files_below("sandboxd", "*.py") | {"sandboxd/py.typed"}
    data = {f"sandboxd/_data/{name}" for name in files_below("profiles") | files_below("vendor")}
    names = {
        name for name in wheel.namelist() if ".dist-info/" not in name and ".data/" not in name
    }
    assert "sandboxd/_data/vendor/UPSTREAM.md" in names
    assert "sandboxd/_data/vendor/seatbelt/rights.yaml" in names
    assert any(name.startswith("sandboxd/_data/profiles/commands/") for name in names)
    assert {name for name in names if name.endswith((".py", ".typed")) or "_data" in name} == (
        code | data
    )
    assert all(name.startswith("sandboxd/") for name in names)


def test_wheel_has_the_command_the_version_and_the_licence(wheel: zipfile.ZipFile) -> None:
    info = f"sandboxd-{sandboxd.__version__}.dist-info"
    script = f"sandboxd-{sandboxd.__version__}.data/scripts/sandboxd"
    assert wheel.read(script).startswith(b"#!python\n")
    assert wheel.getinfo(script).external_attr >> 16 & 0o111
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
    metadata = email.parser.Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert metadata["Version"] == sandboxd.__version__
    assert metadata["License-Expression"] == "GPL-3.0-or-later"
    assert metadata["Requires-Python"] == ">=3.11"


def test_sdist_can_be_built_tested_and_read(sdist_names: set[str]) -> None:
    wanted = files_below("profiles") | files_below("vendor") | files_below("sandboxd", "*.py")
    wanted |= files_below("tests", "*.py") | {"LICENSE", "README.md", "CHANGELOG.md"}
    assert wanted - sdist_names == set()
    assert {"vendor/UPSTREAM.md", "vendor/seatbelt/rights.yaml"} <= sdist_names
    assert files_below("tests/confine/goldens", "*.sb") <= sdist_names


def test_installed_wheel_finds_its_own_data(built: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, with nothing of the checkout in sight."""
    (file,) = built.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from sandboxd.data import data_folder\n"
        "print(data_folder('profiles'), data_folder('vendor'), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    folders = [Path(line) for line in done.stdout.splitlines()]
    assert folders == [tmp_path / "sandboxd/_data" / name for name in ("profiles", "vendor")]
    assert (folders[1] / "UPSTREAM.md").is_file()
