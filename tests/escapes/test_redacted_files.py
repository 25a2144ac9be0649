"""Ways to the secrets of configuration files that a run may see: other names, links, the host's
rewriting, its own mounts. Each file holds a canary; no run may ever print it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator

import pytest

from sandboxd.model import Result
from tests.confined import REQUIRED_TIERS, write
from tests.guarded import Channel, Gate, make_gate

CANARY = "npm_canary0123456789abcdefgh"
FILES = {
    ".npmrc": f"registry=https://reg.example/\n//reg.example/:_authToken={CANARY}\n",
    ".gitconfig": f"[user]\n\tname = Me\n[github]\n\ttoken = {CANARY}\n[include]\n\tpath = ~/more\n",
    "more": f"[alias]\n\tst = status\n[http]\n\textraheader = X: {CANARY}\n",
    ".config/pip/pip.conf": f"[global]\nindex-url = https://me:{CANARY}@i.example/simple\n",
    ".docker/config.json": json.dumps(
        {"auths": {"r.example": {"auth": CANARY}}, "credsStore": "x"}
    ),
    ".cargo/config.toml": f'[build]\njobs = 2\n[registry]\ntoken = "{CANARY}"\n',
    ".config/gh/hosts.yml": f"gh.example:\n  user: me\n  oauth_token: {CANARY}\n",
    ".yarnrc": f"no such format {CANARY}\n",
}
MASKING = [tier for tier in ("namespaces", "bubblewrap") if tier in REQUIRED_TIERS]
KERNEL = [*MASKING, *(["landlock"] if "landlock" in REQUIRED_TIERS else [])]


@pytest.fixture(params=KERNEL)
def gate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    yield from with_files(request.param, monkeypatch)


@pytest.fixture(params=MASKING)
def masking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    yield from with_files(request.param, monkeypatch)


@pytest.fixture
def namespaces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    yield from with_files("namespaces", monkeypatch)


@pytest.fixture
def landlock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    yield from with_files("landlock", monkeypatch)


def with_files(tier: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    for made in make_gate(tier, monkeypatch):
        for name, text in FILES.items():
            write(os.path.join(made.ground.home, name), text)
        yield made


def said(result: Result) -> str:
    assert result.stdout is not None
    assert result.stderr is not None
    return result.stdout.text + result.stderr.text


def test_no_file_shows_its_secret_under_any_name(gate: Gate) -> None:
    """By its name, by links made before and during the run, by the process's root, by a copy."""
    home, workspace = gate.ground.home, gate.ground.workspace
    os.symlink(f"{home}/.npmrc", f"{workspace}/link")
    found = gate.sh(
        f"cd {home}; for f in {' '.join(FILES)}; do cat $f /proc/self/root{home}/$f {workspace}/../home/$f; done; "
        f"cat {workspace}/link; ln -s {home}/.npmrc {workspace}/mine; cat {workspace}/mine; "
        f"ln {home}/.npmrc {workspace}/hard; cat {workspace}/hard; cp -r {home} {workspace}/copy; "
        f"grep -rs canary {home} {workspace} /dev /tmp; cat /proc/self/mountinfo"
    )
    assert "canary" not in said(found)
    assert not os.path.exists(f"{workspace}/hard")


def test_what_is_no_secret_can_be_read(masking: Gate) -> None:
    home = masking.ground.home
    found = said(
        masking.sh(
            f"cd {home}; cat .npmrc .docker/config.json .cargo/config.toml .config/gh/hosts.yml "
            ".config/pip/pip.conf; env -u GIT_CONFIG_GLOBAL git config --global --includes --list"
        )
    )
    for words in (
        "registry = https://reg.example/",
        '"credsStore": "x"',
        '"jobs" = 2',
        "user.name=Me",
    ):
        assert words in found
    for words in ("https://i.example/simple", '"user": me', "alias.st=status"):
        assert words in found


def test_a_copy_can_be_neither_written_nor_moved_nor_uncovered(masking: Gate) -> None:
    home = masking.ground.home
    found = masking.sh(
        f"echo x >> {home}/.npmrc; chmod 666 {home}/.npmrc; rm -f {home}/.npmrc; mv {home}/.npmrc {home}/x; "
        f"umount {home}/.npmrc; mount --bind / {masking.ground.workspace}; cat {home}/.npmrc"
    )
    assert "canary" not in said(found)
    with open(f"{home}/.npmrc", encoding="utf-8") as file:
        assert file.read() == FILES[".npmrc"]


def test_what_cannot_be_read_is_hidden_and_the_result_says_so(gate: Gate) -> None:
    found = gate.sh(f"cat {gate.ground.home}/.yarnrc")
    assert found.exit_code == 1
    assert f"{gate.ground.home}/.yarnrc is hidden: it cannot be read as npmrc" in found.tier.gaps


def test_a_tier_without_copies_hides_what_holds_a_secret_and_shows_the_rest(landlock: Gate) -> None:
    home = landlock.ground.home
    found = landlock.sh(f"cat {home}/.npmrc")
    assert found.exit_code == 1
    assert (
        f"{home}/.npmrc is hidden: tier landlock cannot show it without its secrets"
        in found.tier.gaps
    )
    write(f"{home}/.npmrc", "registry=https://reg.example/\n")
    found = landlock.sh(f"cat {home}/.npmrc")
    assert said(found) == "registry=https://reg.example/\n"
    assert (
        f"{home}/.npmrc is shown as it is in tier landlock: no secret stands in it now"
        in found.tier.gaps
    )


def test_links_are_followed_first(masking: Gate) -> None:
    """Dotfiles live elsewhere and are linked: the file itself is covered, under every name."""
    home, workspace = masking.ground.home, masking.ground.workspace
    os.rename(f"{home}/.npmrc", f"{workspace}/npmrc")
    os.symlink(f"{workspace}/npmrc", f"{home}/.npmrc")
    found = said(masking.sh(f"cat {home}/.npmrc {workspace}/npmrc; echo x > {workspace}/npmrc"))
    assert "canary" not in found
    assert found.count("registry = https://reg.example/") == 2


def test_a_changed_file_is_shown_changed_in_the_next_run(masking: Gate) -> None:
    path = f"{masking.ground.home}/.npmrc"
    assert "reg.example" in said(masking.sh(f"cat {path}"))
    write(path, f"registry=https://new.example/\n_auth={CANARY}\n")
    assert said(masking.sh(f"cat {path}")) == "registry = https://new.example/\n"


def test_a_file_that_the_host_replaces_stays_shut(namespaces: Gate) -> None:
    """`npm login` on the host while a run lives: by a rename over, in place, and a file that was not
    there before."""
    home = namespaces.ground.home
    seen: list[str] = []

    async def rewrite(channel: Channel) -> None:
        assert await channel.line(0) == "ready"
        for number, change in enumerate((replaced, in_place, appeared), 1):
            change(home)
            await asyncio.sleep(0.2)
            await channel.tell("look\n")
            seen.append(await channel.line(number))

    namespaces.talk(
        "def look(*names):\n"
        "    found = ''\n"
        "    for name in names:\n"
        "        try:\n"
        "            found += open(name).read()\n"
        "        except OSError as error:\n"
        "            found += error.strerror\n"
        "    return repr(found)\n"
        "say('ready')\n"
        "for line in sys.stdin:\n"
        f"    say(look('{home}/.npmrc', '{home}/.gitconfig', '{home}/.config/pnpm/rc'))\n",
        rewrite,
    )
    assert len(seen) == 3
    assert not any("canary" in each for each in seen)
    assert "Permission denied" in seen[0]
    assert "Me" in seen[2]


def replaced(home: str) -> None:
    write(f"{home}/.npmrc.new", FILES[".npmrc"])
    os.rename(f"{home}/.npmrc.new", f"{home}/.npmrc")


def in_place(home: str) -> None:
    write(f"{home}/.gitconfig", FILES[".gitconfig"] + "# more\n")


def appeared(home: str) -> None:
    os.makedirs(f"{home}/.config/pnpm", exist_ok=True)
    write(f"{home}/.config/pnpm/rc", FILES[".npmrc"])
