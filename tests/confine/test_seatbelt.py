"""The Seatbelt profile: text that no path can change, and what it decides, by the evaluator.

Nothing here ran on a Mac. What the evaluator takes for granted stands in its docstring.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.confine.sbpl import Evaluator, ProfileError, Subject, evaluate
from sandboxd.confine.seatbelt import SANDBOX_EXEC, Seatbelt
from sandboxd.confine.seatbelt_profile import Generated, generate, spelled
from sandboxd.confine.seatbelt_rights import read_rights, rights
from sandboxd.errors import ProfileBroken, TierUnavailable
from sandboxd.model import Invocation, NetworkMode, Policy
from sandboxd.profiles import Profile, fill_in, load_profile

GOLDENS = Path(__file__).parent / "goldens"
WORKSPACE = "/Users/me/work"
HOSTILE = [
    'a"b', "a)b", "))(allow default)", "$(touch x)", "a\nb", "a\\b", "a b", "#", ";x", "é", "e\u0301", "日本", "'", "`id`", "-D", "%s",
    '") (with no-sandbox', "\t", "{x}", "[a-z]", "^$.*",
]  # fmt: skip
PROFILES = ["default", "agent", "farm", "offline", "read-only", "allowlist", "host-network"]


def policy(workspace: str = WORKSPACE, **changes: object) -> Policy:
    values: dict[str, object] = {
        "profile": "test",
        "workspace": workspace,
        "writable": (workspace,),
        "denied": ("/Users/me/.ssh", workspace + "/keys"),
        "protected": (workspace + "/.git/config", workspace + "/.git/hooks", workspace + "/.envrc"),
        "pinned": (workspace + "/.git",),
        "private_tmp": "/var/folders/zz/T/session",
        "network": NetworkMode.OFF,
        **changes,
    }
    return Policy(**values)  # type: ignore[arg-type]


def evaluated(made: Generated) -> Evaluator:
    return Evaluator(made.text, made.parameters)


def profile_policy(profile: Profile) -> Policy:
    """A shipped profile for a person called `me`, whatever lies on this disk."""
    session = "/private/var/folders/zz/T/session"
    known = {
        "WORKSPACE": WORKSPACE,
        "HOME": "/Users/me",
        "TMP": session,
        "CACHE": session + "/cache",
    }

    def filled(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(path for text in texts if (path := fill_in(text, known)))

    return Policy(
        profile=profile.name,
        workspace=WORKSPACE,
        writable=filled(profile.write),
        denied=("/Users/me/.ssh", "/Users/me/.aws"),
        protected=tuple(f"{WORKSPACE}/{name}" for name in profile.protect),
        pinned=(f"{WORKSPACE}/.git",),
        private_tmp=session,
        network=profile.network,
        unix_sockets=profile.unix_sockets,
    )


# ------------------------------------------------------------------ text and parameters


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_changes_nothing_but_a_parameter(name: str) -> None:
    plain, hostile = generate(policy("/Users/x")), generate(policy(f"/Users/{name}"))
    assert hostile.text == plain.text
    assert hostile.parameters["WRITE_0"] == f"/Users/{name}"
    found = evaluated(hostile)
    assert found.allows("file-write-data", f"/Users/{name}/file")
    assert not found.allows("file-write-data", f"/Users/{name}/.git/config")
    assert not found.allows("file-write-data", "/Users/other/file")
    assert not found.allows("file-write-data", "/etc/file")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_protected_name_is_held_and_not_spliced(name: str) -> None:
    made = generate(policy(protected=(f"{WORKSPACE}/{name}",), pinned=()))
    assert not evaluated(made).allows("file-write-create", f"{WORKSPACE}/{name}")
    assert f"{WORKSPACE}/{name}" in made.parameters.values()
    if not name.isascii() or len(name) > 5:
        assert name not in made.text


def test_a_tag_is_a_plain_word() -> None:
    with pytest.raises(ValueError):
        generate(policy(), tag='x") (allow default')


def test_every_refusal_carries_the_runs_own_tag() -> None:
    text = generate(policy(), tag="abc123").text
    rules = [line for line in text.splitlines() if line.startswith("(deny ")]
    assert rules
    assert all('(with message "sandboxd-abc123")' in rule for rule in rules)


def test_the_order_is_rights_reads_writes_denies_protected_network_sockets() -> None:
    text = generate(policy(network=NetworkMode.HOST)).text
    marks = [
        "(allow process-exec", "(allow file-read* file-test-existence", '(subpath (param "WRITE_0"))', '(literal (param "DENY_0"))',
        '(literal (param "PROTECT_0"))', '(literal (param "PIN_0"))', "(allow network-outbound)", "(socket-domain AF_UNIX)",
    ]  # fmt: skip
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_the_command_line_is_absolute_and_names_each_parameter() -> None:
    tier = Seatbelt(501, 20, real=lambda path: path, tags=lambda: "t")
    invocation = Invocation(
        program="/bin/ls", argv=("ls", "-la", "--"), environment={"A": "b"}, cwd="/"
    )
    plan = tier.plan(invocation, policy())
    assert plan.program == SANDBOX_EXEC == "/usr/bin/sandbox-exec"
    assert plan.argv[:2] == ("sandbox-exec", "-p")
    made = generate(policy(), tag="t")
    values = [f"-D{key}={value}" for key, value in made.parameters.items()]
    assert plan.argv[3:] == (*values, "--", "/bin/ls", "-la", "--")
    assert evaluate(plan.argv[2], plan.argv).allows("file-read-data", "/etc/passwd")
    assert plan.environment == {"A": "b"}
    assert any("not verified on a Mac" in gap for gap in plan.tier.gaps)


def test_a_program_without_a_path_is_refused() -> None:
    tier = Seatbelt(501, 20)
    with pytest.raises(TierUnavailable, match="absolute"):
        tier.plan(Invocation(program="-p", argv=("-p",), environment={}, cwd="/"), policy())


def test_links_are_followed_and_both_spellings_held() -> None:
    made = generate(policy(), real=lambda path: path.replace("/Users/me", "/Volumes/me"))
    found = evaluated(made)
    for home in ("/Users/me", "/Volumes/me"):
        assert found.allows("file-write-data", home + "/work/file")
        assert not found.allows("file-read-data", home + "/.ssh/id")


# ------------------------------------------------------------------ what is decided


@pytest.fixture(scope="module")
def held() -> Evaluator:
    return evaluated(generate(policy()))


WRITES = ["create", "data", "flags", "mode", "owner", "times", "unlink", "xattr"]


@pytest.mark.parametrize("kind", WRITES)
def test_writes_inside_only(held: Evaluator, kind: str) -> None:
    op = f"file-write-{kind}"
    assert held.allows(op, WORKSPACE + "/src/a")
    assert held.allows(op, "/private/var/folders/zz/T/session/x")
    for path in (
        "/Users/me/.bashrc",
        "/etc/hosts",
        "/private/etc/hosts",
        "/Users/me/workx",
        "/usr/local/bin/x",
    ):
        assert not held.allows(op, path)


@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize(
    "name",
    [
        ".git/config",
        ".git/hooks",
        ".git/hooks/pre-commit",
        ".envrc",
        ".GIT/Hooks/x",
        ".Envrc",
        ".git/CONFIG",
    ],
)
def test_protected_names_stay_in_any_letters(held: Evaluator, kind: str, name: str) -> None:
    assert not held.allows(f"file-write-{kind}", f"{WORKSPACE}/{name}")


@pytest.mark.parametrize(
    "name", [".git/config.lock", ".git/objects/ab", ".envrcx", "x/.envrc", ".git/HEAD"]
)
def test_neighbours_of_protected_names_may_be_written(held: Evaluator, name: str) -> None:
    assert held.allows("file-write-create", f"{WORKSPACE}/{name}")


def test_git_itself_may_be_neither_renamed_nor_removed(held: Evaluator) -> None:
    for path in (WORKSPACE + "/.git", WORKSPACE, "/private/var/folders/zz/T/session"):
        assert not held.allows("file-write-unlink", path)
    assert held.allows("file-write-unlink", WORKSPACE + "/.git/index.lock")


def test_folders_above_a_deeper_protected_name_stay_too() -> None:
    found = evaluated(generate(policy(protected=(WORKSPACE + "/a/b/.git/config",), pinned=())))
    assert not found.allows("file-write-unlink", WORKSPACE + "/a")
    assert not found.allows("file-write-unlink", WORKSPACE + "/a/b/.git")
    assert found.allows("file-write-unlink", WORKSPACE + "/a/c")


@pytest.mark.parametrize(
    "op", ["file-read-data", "file-read-metadata", "file-test-existence", "file-write-data"]
)
def test_denied_places_are_neither_read_nor_seen(held: Evaluator, op: str) -> None:
    for path in ("/Users/me/.ssh", "/Users/me/.ssh/id_rsa", WORKSPACE + "/keys/k"):
        assert not held.allows(op, path)
    assert held.allows("file-read-data", "/Users/me/.sshx")


def test_a_literal_alone_would_let_the_folder_be_made(held: Evaluator) -> None:
    """Both `literal` and `subpath` on each exclusion."""
    text = generate(policy()).text
    for line in text.splitlines():
        if "(literal (param" in line and "file-write-unlink" not in line:
            assert "(literal (param" in line
            assert "(subpath (param" in line


def test_private_spellings() -> None:
    found = evaluated(generate(policy("/tmp/work", protected=(), pinned=())))
    assert found.allows("file-write-create", "/private/tmp/work/x")
    assert not found.allows("file-write-create", "/tmp/work/x")
    assert [spelled(path) for path in ("/tmp", "/var/x", "/etc", "/tmpx", "/private/tmp")] == [
        "/private/tmp", "/private/var/x", "/private/etc", "/tmpx", "/private/tmp",
    ]  # fmt: skip


@pytest.mark.parametrize("folder", ["/dev/ptmx", "/dev/null"])
def test_devices(held: Evaluator, folder: str) -> None:
    assert held.decide(
        "file-write-data", Subject(path=folder, vnode_type="CHARACTER-DEVICE")
    ).allowed
    assert not held.allows("file-write-data", "/dev/disk0")


def test_what_programs_need_of_the_platform(held: Evaluator) -> None:
    pty = Subject(path="/dev/ttys003", extensions=("com.apple.sandbox.pty",))
    assert held.decide("pseudo-tty").allowed
    assert held.decide("file-write-data", pty).allowed
    assert not held.allows("file-write-data", "/dev/ttys003")
    assert held.decide("ipc-posix-sem").allowed
    assert held.decide(
        "ipc-posix-shm-write-create", Subject(name="/__KMP_REGISTERED_LIB_42")
    ).allowed
    assert held.decide("sysctl-write", Subject(name="kern.grade_cputype")).allowed
    assert held.decide(
        "mach-lookup", Subject(name="com.apple.system.opendirectoryd.libinfo")
    ).allowed
    assert not held.allows("file-read-data", "/dev/ttys003")
    assert not held.allows("file-write-setugid", WORKSPACE + "/tool")
    assert held.decide("process-exec", Subject(path="/usr/bin/python3")).allowed
    assert held.decide("signal").allowed
    assert not held.decide("signal", Subject(target="others")).allowed


@pytest.mark.parametrize(
    "name",
    ["com.apple.coreservices.appleevents", "com.apple.windowserver", "com.apple.pasteboard.1"],
)
def test_other_services_stay_out_of_reach(held: Evaluator, name: str) -> None:
    assert not held.decide("mach-lookup", Subject(name=name)).allowed


# ------------------------------------------------------------------ network


WEB = Subject(address="example.com:443")
RESOLVER = Subject(path="/private/var/run/mDNSResponder")
DOCKER = Subject(path="/private/var/run/docker.sock")
OWN = Subject(path=WORKSPACE + "/s")


def outbound(mode: NetworkMode, subject: Subject, **changes: object) -> bool:
    found = evaluated(generate(policy(network=mode, **changes)))
    return found.decide("network-outbound", subject).allowed


@pytest.mark.parametrize("mode", [NetworkMode.OPEN, NetworkMode.HOST])
def test_an_open_network_is_really_granted(mode: NetworkMode) -> None:
    """A profile that denies by default silently kills `npm install` otherwise."""
    found = evaluated(generate(policy(network=mode)))
    assert found.decide("network-outbound", WEB).allowed
    assert found.decide("network-inbound", Subject(address="localhost:8080")).allowed
    assert found.decide("network-bind", Subject(address="localhost:8080")).allowed
    assert found.decide("network-outbound", RESOLVER).allowed
    for name in ("com.apple.trustd.agent", "com.apple.SystemConfiguration.DNSConfiguration"):
        assert found.decide("mach-lookup", Subject(name=name)).allowed
    assert found.decide("system-socket", Subject(domain="AF_SYSTEM", protocol=2)).allowed


def test_network_off_grants_none() -> None:
    found = evaluated(generate(policy()))
    for op in ("network-outbound", "network-inbound", "network-bind"):
        assert not found.decide(op, Subject(address="localhost:80")).allowed
    assert not outbound(NetworkMode.OFF, WEB)
    assert not outbound(NetworkMode.OFF, RESOLVER)
    assert not found.decide("mach-lookup", Subject(name="com.apple.trustd.agent")).allowed


def test_an_allowlist_grants_the_proxys_port_alone() -> None:
    made = evaluated(generate(policy(network=NetworkMode.ALLOWLIST), proxy_port=4711))
    decide = made.decide
    assert decide("network-outbound", Subject(address="localhost:4711")).allowed
    for address in ("localhost:4712", "example.com:4711", "example.com:443"):
        assert not decide("network-outbound", Subject(address=address)).allowed
    assert not decide("network-outbound", RESOLVER).allowed
    assert not decide("network-inbound", Subject(address="localhost:80")).allowed


@pytest.mark.parametrize("mode", list(NetworkMode))
def test_sockets_of_the_host_stay_out_of_reach(mode: NetworkMode) -> None:
    assert not outbound(mode, DOCKER)
    assert outbound(mode, OWN)
    assert not outbound(mode, OWN, unix_sockets="none")
    assert not outbound(mode, Subject(path=WORKSPACE + "/keys/s"))
    bind = evaluated(generate(policy(network=mode))).decide
    assert bind("network-bind", OWN).allowed
    assert not bind("network-bind", Subject(path=WORKSPACE + "/.git/hooks/s")).allowed
    assert not bind("network-bind", Subject(path="/Users/me/s")).allowed


# ------------------------------------------------------------------ regressions of others


def test_rights_of_the_platform_do_not_take_a_deny_back() -> None:
    """With the denied place inside what the platform grants."""
    found = evaluated(generate(policy(denied=("/dev/ptmx", "/dev/fd"))))
    assert not found.allows("file-read-data", "/dev/ptmx")
    assert not found.allows("file-read-data", "/dev/fd/3")


def test_a_parameter_without_a_value_is_an_error() -> None:
    made = generate(policy())
    with pytest.raises(ProfileError, match="WRITE_0"):
        Evaluator(made.text, {k: v for k, v in made.parameters.items() if k != "WRITE_0"})


@pytest.mark.parametrize("mode", list(NetworkMode))
def test_nothing_leaves_the_sandbox(mode: NetworkMode) -> None:
    text = generate(policy(network=mode)).text
    assert "no-sandbox" not in text
    assert "import" not in text
    assert "(allow default" not in text


def test_a_writable_folder_inside_a_denied_one_may_be_used() -> None:
    inner = "/Users/me/.cache/inner"
    made = generate(
        policy(writable=(WORKSPACE, inner), denied=("/Users/me/.cache", inner + "/secret"))
    )
    found = evaluated(made)
    assert found.allows("file-write-data", inner + "/x")
    assert found.allows("file-read-data", inner + "/x")
    assert not found.allows("file-read-data", "/Users/me/.cache/x")
    assert not found.allows("file-read-data", inner + "/secret/x")


# ------------------------------------------------------------------ goldens and data


@pytest.mark.parametrize("name", PROFILES)
def test_the_profile_of_each_shipped_profile_is_as_reviewed(name: str) -> None:
    """`WRITE_GOLDENS=1` writes them anew; the change is then for a reviewer."""
    made = generate(profile_policy(load_profile(name)))
    listing = "".join(f"; -D{key}={value}\n" for key, value in made.parameters.items())
    file = GOLDENS / f"{name}.sb"
    if os.environ.get("WRITE_GOLDENS"):
        file.write_text(made.text + "\n" + listing)
    assert file.read_text() == made.text + "\n" + listing
    evaluated(made)


@pytest.mark.parametrize("name", PROFILES)
def test_every_block_of_a_golden_has_its_comment(name: str) -> None:
    blocks = (GOLDENS / f"{name}.sb").read_text().split("\n\n")[1:]
    assert all(block.startswith(";") for block in blocks)


def test_the_rights_say_what_needs_them() -> None:
    every = [right for group in rights().values() for right in group]
    assert len(every) > 15
    assert all(right.needed_by and right.what and right.operations for right in every)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("nonsense: []\n", "group is not known"),
        ("base: []\n", "missing"),
        ("base: [{what: x, allow: [signal], needed_by: y, from: ours, hue: red}]\n", "key is not known"),
        ("base: [{what: x, allow: [signal], from: ours}]\n", "needed_by"),
        ("base: [{what: x, allow: [signal], needed_by: y, from: me}]\n", "none of"),
        ("base: [{what: x, allow: [signal], needed_by: y, from: ours, only: {hue: [red]}}]\n", "no kind"),
    ],
)  # fmt: skip
def test_broken_rights_name_file_and_line(source: str, why: str) -> None:
    with pytest.raises(ProfileBroken, match=why) as caught:
        read_rights(source, "rights.yaml")
    assert "rights.yaml, line" in str(caught.value)
