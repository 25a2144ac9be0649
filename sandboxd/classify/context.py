"""What a verdict depends on besides the text: the context handed in, and the facts probed.

Apart from the classifier because the cache must know exactly which facts a verdict used: a
cached verdict is good only while each of them still holds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandboxd.classify.programs import ProgramFinder
from sandboxd.classify.repository import git_defines_programs, git_folders


@dataclass(frozen=True)
class Context:
    """The facts a verdict depends on."""

    cwd: str
    path: str
    """The run's PATH."""
    home: str
    writable_roots: tuple[str, ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """The request's overlay, graded like assignment prefixes; None unsets."""
    profile: str = "default"
    shell: str = "bash"
    stdin_digest: str | None = None

    def cache_key(self) -> tuple[object, ...]:
        overlay = tuple(sorted(self.environment.items())) if self.environment else ()
        return (
            self.cwd,
            self.path,
            self.home,
            self.writable_roots,
            overlay,
            self.profile,
            self.shell,
            self.stdin_digest,
        )


class Probes:
    """Looks at the host for one verdict and remembers every answer it gave."""

    def __init__(self, finder: ProgramFinder) -> None:
        self._finder = finder
        self._existing: dict[str, bool] = {}
        self._plantable: dict[str, str | None] = {}
        self._git: dict[str, bool] = {}
        self._git_folders: dict[str, tuple[str, str] | None] = {}
        self.commands = 0
        """How many commands were graded for the verdict."""
        self.is_final = True
        """False when the same question may get another answer without any fact changing."""

    def exists(self, path: str) -> bool:
        if path not in self._existing:
            self._existing[path] = os.path.lexists(path)
        return self._existing[path]

    def plantable(self, name: str) -> str | None:
        """Why a run could decide what the program `name` is; None when it cannot."""
        known = self._plantable
        if name not in known:
            known[name] = self._finder.plantable(name)
        return known[name]

    def git_defines_programs(self, folder: str) -> bool:
        if folder not in self._git:
            self._git[folder] = git_defines_programs(folder)
        return self._git[folder]

    def git_folders(self, folder: str) -> tuple[str, str] | None:
        if folder not in self._git_folders:
            self._git_folders[folder] = git_folders(folder)
        return self._git_folders[folder]

    def still_hold(self, finder: ProgramFinder) -> bool:
        """Whether every answer given would be given again now, by a finder made lately."""
        return (
            self.is_final
            and all(os.path.lexists(path) == known for path, known in self._existing.items())
            and all(finder.plantable(name) == why for name, why in self._plantable.items())
            and all(git_defines_programs(folder) == known for folder, known in self._git.items())
            and all(git_folders(folder) == known for folder, known in self._git_folders.items())
        )
