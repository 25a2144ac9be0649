"""Secrets are taken out of each format, and its own reader still understands what is left."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.redaction.formats import FORMATS, is_clean, redact
from sandboxd.redaction.secrets import is_secret_name, without_secrets

CANARY = "canary7secret"
SHOWN: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "npmrc": (
        "npmrc",
        (
            "; old token canary7secret\nregistry=https://reg.example/\n@me:registry = https://r2.example/\n"
            "//reg.example/:_authToken=canary7secret\n//r2.example/:_password=canary7secret\n"
            "//r2.example/:username=me\n_auth = canary7secret\n"
            "proxy=http://u:canary7secret@proxy.example:3128/\nsave-exact=true\nca[]=/etc/ca.pem\nfund\n"
        ),
        (
            "registry = https://reg.example/",
            "@me:registry",
            "username = me",
            "save-exact = true",
            "proxy = http://proxy.example:3128/",
            "ca[] = /etc/ca.pem",
            "\nfund\n",
        ),
    ),
    "pip": (
        "ini",
        (
            "[global]\nindex-url = https://u:canary7secret@i.example/simple\nextra-index-url =\n"
            "    https://canary7secret@two.example/simple\n    https://three.example/simple\n"
            "timeout = 5\ncert = /etc/ca.pem\n# canary7secret\n[install]\nno-deps: true\n"
        ),
        (
            "index-url = https://i.example/simple",
            "https://two.example/simple",
            "timeout = 5",
            "https://three.example/simple",
            "cert = /etc/ca.pem",
            "[install]",
            "no-deps = true",
        ),
    ),
    "git": (
        "gitconfig",
        (
            '[user]\n\tname = Me "X"; c\n\temail = me@example.com # canary7secret\n[core] editor = vim\n'
            '[http "https://x.example"]\n\textraHeader = "AUTHORIZATION: basic canary7secret"\n'
            '[url "https://canary7secret:x@x.example/"]\n\tinsteadOf = x:\n[github]\n\ttoken = canary7secret\n'
            '[credential]\n\thelper = store\n[credential "https://y.example"]\n\tusername = me\n'
            '\thelper = "!f() { echo password=canary7secret; }; f"\n[sendemail]\n\tsmtpPass = canary7secret\n'
            "[alias]\n\tlg = log \\\n  --graph\n\tx = !curl -H 'Authorization: canary7secret'\n"
            "[init]\n\tdefaultBranch = main\n[push]\n\tautoSetupRemote\n"
        ),
        (
            'name = "Me X"',
            'email = "me@example.com"',
            'editor = "vim"',
            'helper = "store"',
            '[url "https://x.example/"]',
            'username = "me"',
            'lg = "log   --graph"',
        ),
    ),
    "docker": (
        "json",
        (
            '{"auths": {"r.example": {"auth": "canary7secret", "identitytoken": "canary7secret"}},'
            '"HttpHeaders": {"X-Meta": "canary7secret"}, "credsStore": "pass", "credHelpers": {"a": "b"},'
            '"proxies": {"default": {"httpProxy": "http://u:canary7secret@p.example:1"}}}'
        ),
        ('"r.example": {}', '"credsStore": "pass"', '"a": "b"', "http://p.example:1"),
    ),
    "cargo": (
        "toml",
        (
            '# canary7secret\n[registries.mine]\nindex = "sparse+https://u:canary7secret@r.example/"\n'
            'token = "canary7secret"\n[registry]\ntoken = """canary7secret"""\n'
            "registries.other = {index = 'https://o.example', token = 'canary7secret'}\n"
            '[build]\njobs = 2\nrustflags = ["-C", "opt-level=2"]\n[net]\ngit-fetch-with-cli = true\n'
            "[target.'cfg(unix)']\nlinker = \"lld\"\n"
        ),
        ("sparse+https://r.example/", '"jobs" = 2', "https://o.example", '"linker" = "lld"'),
    ),
    "gh": (
        "yaml",
        (
            "gh.example:\n  user: me\n  oauth_token: canary7secret\n  git_protocol: ssh\n  users:\n    me:\n"
            "      oauth_token: canary7secret\nother: true\n"
        ),
        ('"user": me', '"git_protocol": ssh', '"other": true'),
    ),
    "maven": (
        "maven",
        (
            "<settings xmlns='m'><servers><server><id>a</id><username>me</username>"
            "<password>canary7secret</password><passphrase>canary7secret</passphrase><configuration>"
            "<httpHeaders><property><value>canary7secret</value></property></httpHeaders></configuration>"
            "</server></servers><mirrors><mirror><url>https://u:canary7secret@m.example</url></mirror>"
            "</mirrors><!-- canary7secret --></settings>"
        ),
        ("https://m.example", "<ns0:id>a</ns0:id>", "me</ns0:username>"),
    ),
}


@pytest.mark.parametrize("case", SHOWN)
def test_secrets_are_gone_and_the_rest_is_there(case: str) -> None:
    form, text, kept = SHOWN[case]
    shown = redact(text, form)
    assert shown is not None
    assert CANARY not in shown
    assert [words for words in kept if words not in shown] == []
    assert redact(shown, form) == shown
    assert not is_clean(text, form)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("npmrc", "a line of prose\n"),
        ("npmrc", "registry=x\nkey with blanks = y\n"),
        ("ini", "no section = 1\n"),
        ("ini", "[a]\nnonsense\n"),
        ("gitconfig", "[user\nname = x\n"),
        ("gitconfig", "name = x\n"),
        ("gitconfig", '[a]\nb = "open\n'),
        ("gitconfig", "[a]\nb = \\q\n"),
        ("json", "{"),
        ("json", "[1]"),
        ("json", "[" * 100_000),
        ("toml", "a = \n"),
        ("yaml", "a: [\n"),
        ("yaml", "- a\n"),
        ("yaml", "a: &x b\nc: *x\n"),
        ("maven", "<a>"),
        ("maven", "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"),
        *((form, "a\0b") for form in FORMATS),
    ],
)
def test_what_cannot_be_read_is_not_shown(form: str, text: str) -> None:
    assert redact(text, form) is None
    assert not is_clean(text, form)


@pytest.mark.parametrize(
    ("form", "text", "clean"),
    [
        ("gitconfig", "[user]\n\tname = Me\n", True),
        ("gitconfig", "# my settings\n[user]\n\tname = Me\n", True),
        ("gitconfig", "# token = abcdef\n[user]\n\tname = Me\n", False),
        ("gitconfig", "[user]\n\tname = Me\n[github]\n\ttoken = a\n", False),
        ("npmrc", "registry=https://r.example/\n", True),
        ("npmrc", "registry=https://u:p@r.example/\n", False),
        ("json", '{"credsStore": "x"}', True),
    ],
)
def test_a_file_without_secrets_is_known_as_one(form: str, text: str, clean: bool) -> None:
    assert is_clean(text, form) is clean


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("https://host/path", "https://host/path"),
        ("https://host/@scope/pkg@1", "https://host/@scope/pkg@1"),
        ("https://u:p@host/x", "https://host/x"),
        ("https://tok@host", "https://host"),
        ("https://u:p@ss@host/x", "https://host/x"),
        ("https://u:p/w@host/x", None),
        ("https://host/x?token=abc&y=1", "https://host/x"),
        ("https://host/x?y=1", "https://host/x?y=1"),
        ("ssh://git@host/x", "ssh://git@host/x"),
        ("ssh://git:pw@host/x", None),
        ("git@host:me/repo", "git@host:me/repo"),
        ("a b https://u:p@h https://i", "a b https://h https://i"),
        ("ghp_0123456789abcdefghij", None),
        ("Bearer abcdefgh", None),
        ("-----BEGIN PRIVATE KEY-----", None),
        ("0123456789abcdef0123456789abcdef01234567", None),
        ("log --graph --oneline --decorate --all", "log --graph --oneline --decorate --all"),
        (
            "/a/very/long/path/to/a/file/with/many/parts/1",
            "/a/very/long/path/to/a/file/with/many/parts/1",
        ),
    ],
)
def test_values(value: str, shown: str | None) -> None:
    assert without_secrets(value) == shown


def test_names() -> None:
    secret = [
        "_authToken",
        "//h/:_password",
        "oauth_token",
        "smtpPass",
        "identitytoken",
        "npmAuthIdent",
    ]
    harmless = [
        "registry",
        "credsStore",
        "credential-provider",
        "helper",
        "cert",
        "user",
        "keyfile",
    ]
    assert [name for name in secret if not is_secret_name(name)] == []
    assert [name for name in harmless if is_secret_name(name)] == []


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["token", "password", "_authToken", "secret", "oauth_token"]),
    st.from_regex(r"[A-Za-z0-9!#$%&*+,./:;<=>?@^_`{|}~' -]{0,12}", fullmatch=True),
    st.sampled_from(sorted(FORMATS)),
)
def test_a_secret_is_never_shown_however_it_is_written(name: str, noise: str, form: str) -> None:
    value = noise + CANARY + noise
    texts = {
        "npmrc": f"//h/:{name}={value}\nx={value}=token=\n",
        "ini": f"[a]\n{name} = {value}\n  {value}\nb = 1\n",
        "gitconfig": f'[a]\n{name} = {json.dumps(value)}\n[b "{name}"]\n c\n',
        "json": json.dumps({"a": [{name: value}, {name: [value]}, {name: {"x": value}}]}),
        "toml": f"[a.b]\n{json.dumps(name)} = {json.dumps(value)}\n[[a.c]]\n{name} = {json.dumps(value)}\n",
        "yaml": f"a:\n  - {{{name}: {json.dumps(value)}}}\n  - {name}:\n      - {json.dumps(value)}\n",
        "maven": f"<s><{name}>{CANARY}</{name}></s>",
    }
    if form == "npmrc":
        texts[form] = f"//h/:{name}={value}\n"
    assert CANARY not in (redact(texts[form], form) or "")


def test_the_tools_own_readers_understand_what_is_left(tmp_path: Path) -> None:
    shown = {case: redact(text, form) or "" for case, (form, text, _) in SHOWN.items()}
    file = tmp_path / "config"
    file.write_text(shown["git"])
    listed = subprocess.run(
        ["git", "config", "--file", str(file), "--list"], capture_output=True, text=True, check=True
    ).stdout
    assert "user.name=Me X" in listed
    assert "alias.lg=log   --graph" in listed
    assert tomllib.loads(shown["cargo"])["target"]["cfg(unix)"]["linker"] == "lld"
    assert json.loads(shown["docker"])["auths"] == {"r.example": {}}
    assert ElementTree.fromstring(shown["maven"]).tag == "{m}settings"
