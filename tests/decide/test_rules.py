"""Each rule, by itself: attack and innocent cases, from tools, guesses and commands."""

from __future__ import annotations

import msgspec
import pytest

from sandboxd.decide.decision import RISK_ACTIONS, decide
from sandboxd.decide.rules.containment import ManifestContainment, PathContainment, WriteScope
from sandboxd.decide.rules.freshness import ReadBeforeWrite, ReferenceExists, StaleWrite
from sandboxd.decide.rules.reaching import (
    ExecInterpreter,
    NetworkHost,
    RepeatLimit,
    interpreter_name,
)
from sandboxd.decide.rules.registry import RULES, BrokenOptions, rules_with
from sandboxd.model import Action, CommandClass, EgressRules, NetworkMode, Tier, Verdict
from sandboxd.proposals import (
    RISKS,
    Parameter,
    PathFact,
    RefusalsFact,
    SeenFact,
    ToolCall,
    Violation,
)
from tests.decide.rules_support import GROUNDS, World, against, call

HOST = NetworkMode.HOST
ALLOWLIST = msgspec.structs.replace(
    GROUNDS,
    network=NetworkMode.ALLOWLIST,
    egress=EgressRules(allow=("pypi.org", "*.example.com"), deny=("bad.example.com",)),
)
OFF = msgspec.structs.replace(GROUNDS, network=NetworkMode.OFF)


def guess(value: str) -> ToolCall:
    one = Parameter(name="x", role="path", value=value, origin="guessed")
    return ToolCall(tool="t", door="assess", parameters=(one,))


# ------------------------------------------------------------------ PathContainment


@pytest.mark.parametrize(
    ("value", "risk"),
    [
        ("a.txt", None),
        ("/w", None),
        ("/private/x", None),
        ("/etc/passwd", "high"),
        ("/w2/x", "high"),
        ("/ref/x", "high"),
        ("/h/.ssh/id", "critical"),
        ("/H/.SSH/id", "critical"),
    ],
)
def test_path_that_is_changed_lies_in_a_writable_folder(value: str, risk: str | None) -> None:
    found = against(PathContainment(), call(path=value))
    assert [one.risk for one in found] == ([risk] if risk else [])


def test_path_that_is_read_may_lie_in_a_readable_folder() -> None:
    assert against(PathContainment(), call(source_path="/ref/x")) == []
    (found,) = against(PathContainment(), call(source_path="/etc/x"))
    assert found.message == "it reads /etc/x, which lies outside the folders of this session"


def test_link_is_judged_by_where_it_leads() -> None:
    world = World(paths={"link": PathFact(canonical="/etc/x", exists=True, shown="/etc/x")})
    assert [one.risk for one in against(PathContainment(), call(path="link"), world)] == ["high"]


def test_path_that_is_none_is_refused() -> None:
    world = World(paths={"a\0b": PathFact(canonical=None, error="the path holds a NUL")})
    (found,) = against(PathContainment(), call(path="a\0b"), world)
    assert "the path holds a NUL" in found.message


def test_guessed_path_is_asked_about_and_a_denied_one_refused() -> None:
    assert [one.risk for one in against(PathContainment(), guess("/api/v1"))] == ["medium"]
    assert [one.risk for one in against(PathContainment(), guess("/h/.ssh"))] == ["critical"]


@pytest.mark.parametrize(
    ("role", "value", "has_kernel", "risk"),
    [
        ("path", "a", True, None),
        ("path", "/etc/x", True, "medium"),
        ("path", "/dev/null", True, None),
        ("path", "/dev/fd/2", True, None),
        ("source_path", "/etc/x", True, None),
        ("source_path", "/h/.ssh/id", True, None),
        ("source_path", "/h/.ssh/id", False, "medium"),
        ("source_path", "/etc/x", False, None),
    ],
)
def test_command_is_asked_about_what_its_sandbox_would_hold(
    role: str, value: str, has_kernel: bool, risk: str | None
) -> None:
    found = against(PathContainment(), call("command", **{role: value}), has_kernel=has_kernel)
    assert [one.risk for one in found] == ([risk] if risk else [])


# ------------------------------------------------------------------ ManifestContainment, WriteScope


def test_one_file_outside_refuses_the_whole_manifest() -> None:
    found = against(ManifestContainment(), call(manifest=["a", "b/c", "/etc/x"]))
    assert [(one.risk, one.message.split(",")[0]) for one in found] == [
        ("high", "one of its files is /etc/x")
    ]
    assert against(ManifestContainment(), call(manifest=["a", "b/c"])) == []


def test_manifest_of_too_many_files_is_not_judged_file_by_file() -> None:
    world = World()
    found = against(ManifestContainment(most_files=3), call(manifest=list("abcd")), world)
    assert (len(found), world.asked) == (1, [])


@pytest.mark.parametrize(
    ("path", "is_in_scope"),
    [
        ("src/a.py", True),
        ("src/deep/er/a.py", True),
        ("README.md", True),
        ("docs/x.md", False),
        ("src2/a.py", False),
        ("src/secret.key", False),
        ("sub/README.md", False),
    ],
)
def test_write_scope_holds_what_the_task_is_about(path: str, is_in_scope: bool) -> None:
    rule = WriteScope(only=("src/**", "./README.md", "README.md/"), never=("*.key",))
    assert (against(rule, call(path=path)) == []) is is_in_scope
    assert (against(rule, call("command", path=path)) == []) is is_in_scope
    assert against(rule, call(source_path=path)) == []


def test_protected_name_is_asked_about_each_time() -> None:
    fact = PathFact(canonical="/w/.git/hooks/x", shown=".git/hooks/x", protected=".git/hooks")
    world = World(paths={".git/hooks/x": fact})
    (found,) = against(WriteScope(), call(path=".git/hooks/x"), world)
    assert (found.risk, found.may_remember) == ("medium", False)
    assert against(WriteScope(), call(source_path=".git/hooks/x"), world) == []
    assert against(WriteScope(), call("command", path=".git/hooks/x"), world) == []


# ------------------------------------------------------------------ freshness


def test_file_that_exists_must_have_been_read() -> None:
    world = World(files={"/w/known": SeenFact(is_seen=True)})
    (found,) = against(ReadBeforeWrite(), call(path="new-to-us"), world)
    assert found.hint == "read it first, then change it"
    assert against(ReadBeforeWrite(), call(path="known"), world) == []


@pytest.mark.parametrize(
    "innocent",
    [
        call(path="a", copies=True),
        call("command", path="a"),
        call(source_path="a"),
        guess("a"),
    ],
)
def test_reading_first_is_asked_of_contents_that_a_model_made(innocent: ToolCall) -> None:
    assert against(ReadBeforeWrite(), innocent) == []


@pytest.mark.parametrize("rule", [ReadBeforeWrite(), StaleWrite()])
def test_new_file_and_folder_need_no_reading(rule: ReadBeforeWrite) -> None:
    paths = {
        "new": PathFact(canonical="/w/new"),
        "dir": PathFact(canonical="/w/dir", exists=True, is_folder=True),
    }
    assert against(rule, call(path=["new", "dir"]), World(paths=paths)) == []


def test_file_that_changed_since_is_stale() -> None:
    world = World(
        files={
            "/w/a": SeenFact(is_seen=True, is_current=False),
            "/w/b": SeenFact(is_seen=True, is_current=True),
        }
    )
    found = against(StaleWrite(), call(manifest=["a", "b", "never-seen"]), world)
    assert [one.message for one in found] == ["a has changed since it was read"]


def test_reference_must_exist_and_a_real_one_outside_is_not_called_missing() -> None:
    world = World(
        paths={
            "gone": PathFact(canonical="/w/gone", shown="gone"),
            "~/.config/x": PathFact(canonical="/h/.config/x", exists=True, shown="/h/.config/x"),
        }
    )
    asked = call(source_path=["gone", "~/.config/x"])
    assert [one.message for one in against(ReferenceExists(), asked, world)] == [
        "gone does not exist"
    ]
    assert len(against(PathContainment(), asked, world)) == 1
    assert against(ReferenceExists(), call("command", source_path="gone"), world) == []
    assert against(ReferenceExists(), call(path="gone"), world) == []


# ------------------------------------------------------------------ hosts and programs


@pytest.mark.parametrize(
    ("host", "grounds", "is_allowed"),
    [
        ("example.com", GROUNDS, True),
        ("127.0.0.1:8000", GROUNDS, False),
        ("[::1]:80", GROUNDS, False),
        ("169.254.169.254", GROUNDS, False),
        ("[::ffff:10.0.0.1]", GROUNDS, False),
        ("10.0.0.1", msgspec.structs.replace(GROUNDS, network=HOST), True),
        ("pypi.org", ALLOWLIST, True),
        ("a.example.com:443", ALLOWLIST, True),
        ("bad.example.com", ALLOWLIST, False),
        ("evil.org", ALLOWLIST, False),
        ("example.com", OFF, False),
        ("not a host!", GROUNDS, False),
    ],
)
def test_host_of_a_tool(host: str, grounds: object, is_allowed: bool) -> None:
    found = against(NetworkHost(), call(host=host), grounds=grounds)
    assert [one.risk for one in found] == ([] if is_allowed else ["high"])


def test_grant_of_a_person_stands_for_the_allowlist_and_for_nothing_else() -> None:
    world = World(granted={"evil.org", "bad.example.com", "169.254.169.254"})
    asked = call(host=["evil.org", "bad.example.com", "169.254.169.254"])
    found = against(NetworkHost(), asked, world, grounds=ALLOWLIST)
    assert [one.message.split()[2] for one in found] == ["bad.example.com,", "169.254.169.254,"]


def test_command_reaches_its_own_loopback_and_is_asked_about_the_rest() -> None:
    assert against(NetworkHost(), call("command", host="127.0.0.1:3000")) == []
    (found,) = against(NetworkHost(), call("command", host="10.0.0.1"))
    assert found.risk == "medium"
    assert against(NetworkHost(), call("command", host="x.org"), grounds=OFF) == []


@pytest.mark.parametrize(
    ("program", "is_denied"),
    [
        ("python", True),
        ("python3", True),
        ("/usr/bin/python3.11", True),
        ("pythonic", False),
        ("perl", True),
        ("perl5.36", True),
        ("ls", False),
        ("./tool", True),
        ("./plain", False),
        ("./link", True),
        ("./missing", False),
    ],
)
def test_interpreter_by_name_by_shebang_and_by_link(program: str, is_denied: bool) -> None:
    world = World(
        paths={
            "./link": PathFact(canonical="/usr/bin/python3.11", exists=True),
            "./tool": PathFact(canonical="/w/tool", exists=True),
            "./plain": PathFact(canonical="/w/plain", exists=True),
            "./missing": PathFact(canonical="/w/missing"),
        },
        scripts={"/w/tool": ("/usr/bin/env", "python3"), "/w/plain": ("/bin/sh",)},
    )
    rule = ExecInterpreter(deny=("python", "perl"))
    assert (len(against(rule, call("command", program=program), world)) == 1) is is_denied


def test_no_denied_interpreter_means_no_look() -> None:
    world = World()
    assert against(ExecInterpreter(), call("command", program="./x"), world) == []
    assert world.asked == []


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("python3.11", "python"),
        ("node", "node"),
        ("perl5.36.0", "perl"),
        ("7z", "7z"),
        ("42", "42"),
    ],
)
def test_version_is_no_part_of_an_interpreters_name(name: str, plain: str) -> None:
    assert interpreter_name(name) == plain


def test_same_refused_call_again_and_again_is_stopped() -> None:
    for count, age_s, is_stopped in ((2, 1.0, False), (3, 1.0, True), (9, 601.0, False)):
        world = World(counts={"k": RefusalsFact(count=count, age_s=age_s)})
        found = against(RepeatLimit(), call(key="k", path="a"), world)
        assert (len(found) == 1) is is_stopped
    assert against(RepeatLimit(), call(path="a"), World()) == []


# ------------------------------------------------------------------ registry and decision


def test_every_rule_is_on_and_every_option_has_a_default() -> None:
    assert [type(rule) for rule in rules_with({})] == list(RULES)


def test_options_come_as_text_from_a_profile() -> None:
    rules = rules_with({"RepeatLimit": {"limit": "5"}, "WriteScope": {"only": ("src/**",)}})
    assert RepeatLimit(limit=5) in rules
    assert WriteScope(only=("src/**",)) in rules
    off = rules_with({"StaleWrite": {"enabled": "false"}})
    assert StaleWrite() not in off
    assert len(off) == len(RULES) - 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"NoRule": {}}, "there is no such rule"),
        ({"RepeatLimit": {"limt": "5"}}, "unknown field `limt`"),
        ({"RepeatLimit": {"limit": "five"}}, "limit"),
        ({"PathContainment": {"risk": "terrible"}}, "terrible"),
    ],
)
def test_broken_options_say_what_is_wrong(options: dict[str, dict[str, str]], says: str) -> None:
    with pytest.raises(BrokenOptions, match=says):
        rules_with(options)


def test_every_risk_has_its_decision_and_worse_is_never_milder() -> None:
    assert set(RISK_ACTIONS) == set(RISKS)
    order = [Action.ALLOW, Action.ASK, Action.REFUSE]
    found = [order.index(RISK_ACTIONS[risk]) for risk in RISKS]
    assert found == sorted(found)


READING = Verdict(class_=CommandClass.READ_ONLY, parsed=True, cacheable=True, approval_key="k")
TIER = Tier(name="namespaces", kernel=True, enforces=(), gaps=())


@pytest.mark.parametrize(
    ("risk", "approve", "approval", "expected"),
    [
        ("low", "none", "standard", Action.ALLOW),
        ("medium", "none", "standard", Action.ASK),
        ("medium", "mutating", "standard", Action.ALLOW),
        ("medium", "none", "never", Action.ALLOW),
        ("high", "all", "standard", Action.REFUSE),
        ("high", "all", "never", Action.REFUSE),
        ("critical", "all", "trust-sandbox", Action.REFUSE),
    ],
)
def test_decision_with_a_violation(
    risk: str, approve: str, approval: str, expected: Action
) -> None:
    one = Violation(rule="R", risk=risk, message="told", hint="h")  # type: ignore[arg-type]
    grounds = msgspec.structs.replace(GROUNDS, approval=approval)
    found = decide(
        READING,
        grounds,
        TIER,
        approve=approve,  # type: ignore[arg-type]
        approved=(),
        approved_hosts=(),
        violations=(one,),
    )
    assert found.action is expected
    assert ("told" in found.reasons) is (
        (risk != "low" and approval != "never") or risk in ("high", "critical")
    )


def test_what_may_not_be_remembered_is_asked_again() -> None:
    for may_remember, expected in ((True, Action.ALLOW), (False, Action.ASK)):
        one = Violation(rule="R", risk="medium", message="m", hint="h", may_remember=may_remember)
        found = decide(
            READING,
            GROUNDS,
            TIER,
            approve="none",
            approved={"k"},
            approved_hosts=(),
            violations=(one,),
        )
        assert found.action is expected


def test_command_that_cannot_be_read_is_taken_for_what_a_rule_forbids() -> None:
    opaque = msgspec.structs.replace(call("command"), is_opaque=True)
    for strict, lax in (
        (ExecInterpreter(deny=("perl",)), ExecInterpreter()),
        (WriteScope(only=("src/**",)), WriteScope()),
    ):
        assert [one.risk for one in against(strict, opaque)] == ["high"]
        assert against(strict, call("command")) == []
        assert against(lax, opaque) == []
