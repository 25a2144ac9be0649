"""The rules of the house, read from the source itself: who may import what, and what may be said.

`ci/contract` runs this file alone. Each rule is a function over parsed modules; the tests at the
end show that the rules catch what they are for.
"""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandboxd import errors
from sandboxd.errors import Refusal, SandboxdError

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "sandboxd"

STAGES = ("classify", "decide", "confine", "spawn", "output", "files", "events", "egress")
FOUNDATION = (
    "errors",
    "model",
    "proposals",
    "system",
    "profiles",
    "policy",
    "strict_yaml",
    "config",
    "data",
    "redaction",
    "filling",
)
"""What a stage may import beside itself; these import no stage."""
EXTERNAL_OWNERS = {
    "bashlex": {"classify/parse.py", "classify/worker.py"},
    "tree_sitter": {"classify/crosscheck.py"},
    "tree_sitter_bash": {"classify/crosscheck.py"},
    "sqlite3": {"events/reading.py", "events/schema.py", "events/store.py"},
}
CTYPES_OWNERS = ("system/", "spawn/zygote.py")
PLATFORM_OWNERS = ("system/", "confine/select.py")
EVENT_WRITER = "pipeline.py"
EVENT_LOG_HOLDERS = ("pipeline.py", "engine.py")
"""The engine opens and closes the log that the pipeline appends to."""
FAST_PATH_NEVER_LOADS = ("asyncio", "bashlex", "click", "msgspec", "tree_sitter", "yaml")
LINE_CEILING = 500
LONG_EXCUSE = "This file is long because"
OUTSIDE_FOLDER = "../" + "shared"


@dataclass(frozen=True)
class Module:
    """One source file: its path below `sandboxd/`, and its syntax tree."""

    path: str
    tree: ast.Module

    @property
    def part(self) -> str:
        """The folder or module directly below `sandboxd/`: the unit of the rules."""
        return self.path.split("/")[0].removesuffix(".py")

    def imports(self) -> Iterator[str]:
        """Absolute dotted names of everything imported, also lazily and for types only."""
        package = ["sandboxd", *self.path.split("/")[:-1]]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                start = ".".join([*above, *([node.module] if node.module else [])])
                yield from (f"{start}.{alias.name}" for alias in node.names)

    def imported_parts(self) -> Iterator[str]:
        """The parts of sandboxd itself that are imported."""
        for name in self.imports():
            top, _, rest = name.partition(".")
            if top == "sandboxd" and rest:
                yield rest.split(".")[0]


def parse(path: str, source: str) -> Module:
    return Module(path, ast.parse(textwrap.dedent(source)))


def modules() -> list[Module]:
    return [
        parse(str(file.relative_to(PACKAGE)), file.read_text())
        for file in sorted(PACKAGE.rglob("*.py"))
    ]


# ------------------------------------------------------------------ the rules


def foreign_stages(module: Module) -> list[str]:
    """Imports that a stage, or what lies beneath all stages, must not have."""
    if module.part in STAGES:
        allowed = {module.part, *FOUNDATION, "__version__"}
    elif module.part in FOUNDATION:
        allowed = {*FOUNDATION, "__version__"}
    elif module.part == "adapters":
        allowed = {"adapters", "client", "protocol", "errors", "model", "__version__"}
    else:
        return []
    return [
        f"{module.path} imports {part}" for part in module.imported_parts() if part not in allowed
    ]


def foreign_libraries(module: Module) -> list[str]:
    found = []
    for name in module.imports():
        top = name.split(".")[0]
        if top == "ctypes":
            if not module.path.startswith(CTYPES_OWNERS):
                found.append(f"{module.path} imports ctypes")
        elif module.path not in EXTERNAL_OWNERS.get(top, {module.path}):
            found.append(f"{module.path} imports {top}")
    return found


def platform_questions(module: Module) -> list[str]:
    """`sys.platform`, `from sys import platform`, `platform.system()`."""
    if module.path.startswith(PLATFORM_OWNERS):
        return []
    found = [name for name in module.imports() if name == "sys.platform"]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            dotted = f"{node.value.id}.{node.attr}"
            if dotted in ("sys.platform", "platform.system"):
                found.append(dotted)
    return [f"{module.path} asks {name}" for name in found]


def event_writers(module: Module) -> list[str]:
    """Reading events is anybody's; only the pipeline appends, and only the engine holds the log."""
    if module.part == "events" or module.path == EVENT_WRITER:
        return []
    found = [f"{module.path} line {line} appends an event" for line in _appends(module.tree)]
    if module.path not in EVENT_LOG_HOLDERS:
        inner = tuple(f"sandboxd.events.{name}" for name in ("log", "store", "schema"))
        found += [
            f"{module.path} imports {name}" for name in module.imports() if name.startswith(inner)
        ]
    return found


def _appends(tree: ast.Module) -> Iterator[int]:
    """Lines with `log.append(..)`, `anything.log.append(..)`, whatever it is appended to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if node.func.attr == "append" and name.strip("_") in ("log", "event_log", "events"):
                yield node.lineno


RULES = (foreign_stages, foreign_libraries, platform_questions, event_writers)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps_the_rule(rule: object) -> None:
    assert callable(rule)
    assert [line for module in modules() for line in rule(module)] == []


def test_the_stages_named_here_are_folders() -> None:
    missing = [stage for stage in STAGES if not (PACKAGE / stage).is_dir()]
    assert set(missing) <= {"files", "egress"}, missing


# ------------------------------------------------------------------ the rules catch their prey


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        (foreign_stages, "decide/rules.py", "from sandboxd.classify.classifier import Classifier"),
        (foreign_stages, "decide/rules.py", "from sandboxd import spawn"),
        (foreign_stages, "decide/rules.py", "import sandboxd.spawn.launcher"),
        (foreign_stages, "decide/rules.py", "from ..spawn import launcher"),
        (foreign_stages, "decide/rules.py", "from .. import spawn"),
        (foreign_stages, "output/ring.py", "def f():\n    from sandboxd.events import log"),
        (foreign_stages, "output/ring.py", "import sandboxd.pipeline"),
        (foreign_stages, "model.py", "from sandboxd.output.ring import Ring"),
        (foreign_stages, "adapters/mcp.py", "from sandboxd.pipeline import Engine"),
        (foreign_libraries, "classify/lexer.py", "import bashlex.parser"),
        (foreign_libraries, "cli/exec.py", "from bashlex import parse"),
        (foreign_libraries, "confine/seccomp.py", "import ctypes.util"),
        (foreign_libraries, "spawn/launcher.py", "from ctypes import CDLL"),
        (foreign_libraries, "daemon/service.py", "import sqlite3"),
        (platform_questions, "cli/doctor.py", "import sys\nif sys.platform == 'linux': pass"),
        (platform_questions, "cli/doctor.py", "from sys import platform"),
        (platform_questions, "config.py", "import platform\nplatform.system()"),
        (event_writers, "daemon/service.py", "from sandboxd.events.log import EventLog"),
        (event_writers, "cli/events.py", "from sandboxd.events import store"),
        (event_writers, "engine.py", "def f(self, e):\n    self.log.append(e)"),
        (event_writers, "supervise.py", "def f(log, e):\n    log.append(e)"),
    ],
)
def test_offence_is_found(rule: object, path: str, source: str) -> None:
    assert callable(rule)
    assert len(rule(parse(path, source))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("decide/rules.py", "from sandboxd.model import Verdict\nfrom . import approvals"),
        ("decide/rules.py", "from .approvals import remember\nimport sandboxd.errors"),
        ("classify/parse.py", "import bashlex"),
        ("spawn/zygote.py", "import ctypes"),
        ("system/linux.py", "import sys\nsys.platform"),
        ("pipeline.py", "from sandboxd.events.log import EventLog\nimport sandboxd.spawn.launcher"),
        ("pipeline.py", "def f(engine, e):\n    engine.log.append(e)"),
        ("engine.py", "from sandboxd.events.log import EventLog"),
        ("daemon/service.py", "from sandboxd.events.kinds import StoredEvent\n[].append(1)"),
    ],
)
def test_honest_module_passes(path: str, source: str) -> None:
    assert [line for rule in RULES for line in rule(parse(path, source))] == []


# ------------------------------------------------------------------ the fast path

_RUN_AND_LIST = """
    import atexit, sys
    from sandboxd.cli import main
    atexit.register(lambda: print(*sys.modules, file=open(sys.argv_file, "w")))
    sys.argv_file, sys.argv = sys.argv[1], ["sandboxd", *sys.argv[2:]]
    sys.exit(main())
"""


def test_exec_through_a_daemon_loads_almost_nothing(tmp_path: Path) -> None:
    place, listing = tmp_path / "s", tmp_path / "modules"
    daemon = subprocess.Popen(
        [sys.executable, "-m", "sandboxd", "serve", "--socket", str(place)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(place, daemon)
        command = ["exec", "--socket", str(place), "--", "echo", "through the gate"]
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(_RUN_AND_LIST), str(listing), *command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=60,
        )
    finally:
        daemon.terminate()
        daemon.wait(timeout=30)
    assert (done.returncode, done.stdout) == (0, "through the gate\n"), done.stderr
    loaded = set(listing.read_text().split())
    assert "sandboxd.cli" in loaded
    assert loaded.isdisjoint(FAST_PATH_NEVER_LOADS)


def _wait_for(path: Path, daemon: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    with socket.socket(socket.AF_UNIX) as probe:
        while probe.connect_ex(str(path)) != 0:
            assert daemon.poll() is None, "the daemon ended at once"
            assert time.monotonic() < deadline, "the daemon never listened"
            time.sleep(0.05)


# ------------------------------------------------------------------ words and sizes


def project_files() -> list[Path]:
    """Every file of the project: what git knows, or in an unpacked archive what lies there."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        names = [os.fsdecode(name) for name in listed.split(b"\0") if name]
        return [ROOT / name for name in names if (ROOT / name).is_file()]
    return [
        file
        for file in ROOT.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(ROOT).parts)
    ]


def test_no_file_speaks_of_what_lies_outside_the_project() -> None:
    words = (OUTSIDE_FOLDER, "/work/" + "shared")
    found = [
        str(file)
        for file in project_files()
        if any(word.encode() in file.read_bytes() for word in words)
    ]
    assert found == []


def test_long_module_says_why_it_is_long() -> None:
    found = []
    for file in project_files():
        if file.suffix == ".py":
            source = file.read_text()
            excuse = ast.get_docstring(ast.parse(source)) or ""
            if source.count("\n") > LINE_CEILING and LONG_EXCUSE not in excuse:
                found.append(f"{file.relative_to(ROOT)} has {source.count(chr(10))} lines")
    assert found == []


# ------------------------------------------------------------------ refusals


def every(kind: type[SandboxdError]) -> Iterator[type[SandboxdError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from every(child)


def refusals() -> list[type[Refusal]]:
    """All refusals, those included that modules outside errors.py might define."""
    for file in sorted(PACKAGE.glob("*/*.py")):
        if "class" in (text := file.read_text()) and "Refusal)" in text:
            __import__(f"sandboxd.{file.parent.name}.{file.stem}")
    return [kind for kind in every(Refusal) if issubclass(kind, Refusal)]


def test_every_refusal_has_a_code_of_its_own() -> None:
    counted = Counter(kind.code for kind in refusals())
    assert {code: count for code, count in counted.items() if count > 1} == {}


def test_every_refusal_lives_in_the_hierarchy_that_the_wire_knows() -> None:
    assert {kind.__module__ for kind in refusals()} == {"sandboxd.errors"}


def test_every_error_is_drawn_in_the_tree() -> None:
    """The docstring of errors.py is the drawing; a class that is missing there is not found."""
    drawing = errors.__doc__ or ""
    drawn = {line.split("+-- ")[1].split()[0] for line in drawing.splitlines() if "+-- " in line}
    kinds = [kind for kind in every(SandboxdError) if kind.__module__ == errors.__name__]
    assert drawn == {kind.__name__ for kind in kinds} - {"SandboxdError"}
