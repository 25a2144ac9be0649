"""Secrets and file contents never reach the log as they are; ordinary text stays as it is."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.events.kinds import EXCERPT_BYTES, Finished, Refused, VerdictGiven
from sandboxd.events.redaction import MARKERS, REDACTED, Redactor, without_bodies
from sandboxd.model import Captured, CommandClass, Part, Reason, Result, Verdict
from tests.events.samples import DECISION, TIER, VERDICT

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "b3BlbnNzaC1rZXk\n" * 20
END = "-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("curl -u me:pw12345 http://x", "pw12345"),
        ("git clone https://bob:s3cr3t@host/x.git", "s3cr3t"),
        ("export API_KEY=abcdef123456", "abcdef123456"),
        ("PASSWORD=swordfish make", "swordfish"),
        ("password: 'zzzzzz999'", "zzzzzz999"),
        ("curl -H 'Authorization: Bearer abc.def-ghij12' x", "abc.def-ghij12"),
        ("mysql --password=foo1234 db", "foo1234"),
        ("login --token abcdef9123", "abcdef9123"),
        ('{"client_secret": "AbCd1234/+x"}', "AbCd1234"),
        ("aws configure set x AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("gh auth " + "ghp_" + "a1B2" * 9, "a1B2a1B2"),
        ("echo " + "xoxb-" + "123456789012-abcdef", "123456789012"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJzdWIi"),
        (KEY + END, "b3BlbnNzaC1rZXk"),
        (KEY, "b3BlbnNzaC1rZXk"),
        (KEY[40:] + END, "b3BlbnNzaC1rZXk"),
        ("the value is correct-horse-battery", "correct-horse-battery"),
    ],
)
def test_secret_is_replaced(text: str, secret: str) -> None:
    found = Redactor(["correct-horse-battery", "short"]).text(text)
    assert secret not in found
    assert REDACTED in found


@pytest.mark.parametrize(
    "text",
    [
        "ls -la && git status",
        "the password for bob was wrong",
        "token type must be one of",
        "see https://example.com:8080/a@b",
        "a short word",
        "sort -u file",
        "secret_santa.py:12: passed",
        "grep -n token src/lexer.py",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor(["short"]).text(text) == text


def test_body_of_a_here_document_is_not_kept() -> None:
    text = "cat > .env <<'EOF'\nA=1\nB=2\nEOF\nwc -l .env"
    assert without_bodies(text) == "cat > .env <<'EOF'\n[2 lines not kept]\nEOF\nwc -l .env"


@pytest.mark.parametrize("text", ["echo $((1<<2))\nls", "cat <<EOF\nnever ends", "a <<< word\nb"])
def test_text_without_a_body_stays(text: str) -> None:
    assert without_bodies(text) == text


def test_verdict_event_keeps_no_secret_anywhere() -> None:
    command = "curl -u me:hunter22 https://example.com <<EOF\nfile content\nEOF"
    part = Part((0, 5), "curl -u me:hunter22 https://example.com", CommandClass.READ_ONLY, "c", "r")
    verdict = Verdict(
        class_=CommandClass.READ_ONLY,
        parsed=True,
        cacheable=True,
        parts=(part,),
        reasons=(Reason("c", "curl -u me:hunter22"),),
    )
    event = VerdictGiven.of("s", "r", command=command, cwd="/w", verdict=verdict)
    assert "hunter22" not in str(event)
    assert "file content" not in str(event)


def test_result_event_is_redacted_before_it_is_cut() -> None:
    """The cut falls into the key; its shape is gone then, so it must have been found before."""
    text = "x" * 100 + KEY + END + "y" * (EXCERPT_BYTES - 100)
    result = Result(
        run_id="r",
        exit_code=0,
        duration_s=0.1,
        cwd="/w",
        tier=TIER,
        verdict=VERDICT,
        decision=DECISION,
        stdout=Captured(text=text, total_bytes=len(text), total_lines=22),
    )
    event = Finished.of("s", result)
    assert "b3Blbn" not in event.stdout_end
    assert len(event.stdout_end.encode()) <= EXCERPT_BYTES


def test_refusal_event_is_redacted() -> None:
    from sandboxd.errors import InvalidRequest

    event = Refused.of("s", "r", InvalidRequest("bad password=hunter22", hint="token: hunter2222"))
    assert "hunter22" not in str(event)


@given(st.text(max_size=300))
def test_markers_are_never_a_reason_to_miss(text: str) -> None:
    """Redacting with a marker in front finds the same as without: the quick look hides nothing."""
    plain = Redactor().text(text)
    marked = Redactor().text(MARKERS[0] + "\n" + text)
    assert marked == MARKERS[0] + "\n" + plain


@pytest.mark.parametrize(
    "text", ["a" * 4096, "token" * 800, "eyJ" + "a" * 4000, "x://" + "a:" * 2000, "_token_" * 500]
)
def test_hostile_text_takes_no_time(text: str) -> None:
    started = time.perf_counter()
    Redactor().text(text)
    assert time.perf_counter() - started < 1
