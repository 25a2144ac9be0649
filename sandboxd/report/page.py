"""The page itself: one HTML file that needs nothing from elsewhere.

Everything that came from a command, a path or the network is escaped, and a content policy in the page
forbids every load, so that opening a report of hostile output is safe.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape

from msgspec import Struct

from sandboxd.events.statistics import Statistics
from sandboxd.report.charts import LAYERS, Bar, ring, strip
from sandboxd.report.collect import Call, Line, Story
from sandboxd.report.style import CSS, SCRIPT

_FILTERS = (
    ("", "All"),
    ("failed", "Failed"),
    ("refused", "Refused"),
    ("denied", "Denied by the sandbox"),
    ("asked", "Asked"),
    ("changes", "Changes something"),
)


class FileDiff(Struct, frozen=True, kw_only=True):
    """One file that was changed, as far as it is known."""

    path: str
    operation: str
    at: float
    diff: str | None
    """Unified; None when the contents are no longer kept."""
    added: int = 0
    removed: int = 0
    note: str = ""


def page(
    story: Story,
    stats: Statistics,
    files: Sequence[FileDiff],
    *,
    made_at: float,
    last_hash: str | None,
    version: str,
) -> str:
    """The whole report as HTML."""
    return "".join(
        [
            "<!doctype html><html lang=en><head><meta charset=utf-8>",
            f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">',
            '<meta name=viewport content="width=device-width,initial-scale=1">',
            f"<title>Session {escape(story.session_id)}</title><style>{CSS}</style></head><body><main>",
            *_head(story),
            *_numbers(story, stats),
            *_strip(story),
            *_calls(story),
            *_files(files),
            *_approvals(story),
            "<footer>",
            f"Made {_date(made_at)} by sandboxd {escape(version)} from its event log.",
            f" Hash of its newest event: <code>{escape(last_hash)}</code>." if last_hash else "",
            f"</footer></main><script>{SCRIPT}</script></body></html>\n",
        ]
    )


def _policy() -> str:
    """Nothing may be loaded; the one script is named by its hash."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


# --------------------------------------------------------------------------- top


def _head(story: Story) -> Iterator[str]:
    lasted = _duration(max(0.0, story.ended - story.began))
    yield f"<header><h1>Session <code>{escape(story.session_id)}</code></h1>"
    yield f"<p class=sub><span class=mono>{escape(story.workspace)}</span></p>"
    yield f"<p class=sub>profile {escape(story.profile)} · {_date(story.began)} · {lasted}</p></header>"


def _numbers(story: Story, stats: Statistics) -> Iterator[str]:
    denied = sum(_is_denied(call) for call in story.calls)
    asked = sum(len(call.asked) for call in story.calls)
    changed = len(
        {path for call in story.calls for one in call.files for path in one.paths if one.change_id}
    )
    cards = (
        (len(story.calls), "calls", ""),
        (stats.ok + stats.answers, "ended well", ""),
        (sum(call.outcome == "failed" for call in story.calls), "failed", "bad"),
        (sum(call.outcome == "refused" for call in story.calls), "refused", "bad"),
        (denied, "denied by the sandbox", "warn"),
        (asked, "questions to a person", "warn"),
        (changed, "files changed by tools", ""),
        (
            len({call.launched.tier.name for call in story.calls if call.launched}),
            _tiers(story),
            "",
        ),
    )
    yield "<div class=top><div class=numbers>"
    for count, label, tone in cards:
        loud = tone if count else ""
        yield f'<div class="card number-card {loud}"><b>{count}</b><span>{escape(label)}</span></div>'
    yield "</div>"
    yield from _attribution(stats)
    yield "</div>"


def _tiers(story: Story) -> str:
    names = sorted({call.launched.tier.name for call in story.calls if call.launched})
    return "tier: " + ", ".join(names) if len(names) < 3 else "tiers"


def _attribution(stats: Statistics) -> Iterator[str]:
    counts = {row.layer: row.count for row in stats.layers}
    yield f'<section class="card why" aria-label="whose failures">{ring(counts)}<ul class=legend>'
    for layer in LAYERS:
        if counts.get(layer):
            share = counts[layer] / max(1, stats.failed)
            yield f'<li><i style="background:var(--layer-{layer})"></i>{layer}<b>{counts[layer]}</b>{share:>5.0%}</li>'
    if not counts:
        yield "<li>nothing failed</li>"
    yield "</ul></section>"


def _strip(story: Story) -> Iterator[str]:
    bars = [
        Bar(call.at, _seconds(call), call.outcome, _title(call), f"call-{number}")
        for number, call in enumerate(story.calls, 1)
    ]
    yield '<div class="card strip-card">'
    yield strip(bars, story.began, story.ended)
    yield f"<div class=strip-times><span>{_clock(story.began)}</span><span>{_clock(story.ended)}</span></div></div>"


def _title(call: Call) -> str:
    text = call.lines[0].text if call.lines else call.run_id
    return f"{_clock(call.at)}  {text[:120]}  ({call.outcome})"


# --------------------------------------------------------------------------- calls


def _calls(story: Story) -> Iterator[str]:
    yield "<h2>Timeline</h2><div class=filters>"
    for value, label in _FILTERS:
        pressed = "true" if not value else "false"
        yield f'<button value="{value}" aria-pressed={pressed}>{label}</button>'
    yield "</div>"
    if not story.calls:
        yield "<div class=card><p class=empty>Nothing was called in this session.</p></div>"
    for number, call in enumerate(story.calls, 1):
        yield from _call(number, call)


def _call(number: int, call: Call) -> Iterator[str]:
    tags = " ".join(_tags(call))
    text = call.lines[0].text if call.lines else _without_lines(call)
    more = f" <span class=hint>and {len(call.lines) - 1} more</span>" if len(call.lines) > 1 else ""
    yield f'<details class="card call {call.outcome}" id=call-{number} data-tags="{tags}"><summary>'
    yield f"<span class=when>{_clock(call.at)}</span>"
    yield f"<span><code class=command>{escape(text)}</code>{more}</span>"
    yield f"<span class=marks>{''.join(_marks(call))}</span></summary><div class=more>"
    yield from _no(call)
    yield from _judgements(call)
    yield from _output(call)
    yield from _facts(call)
    yield "</div></details>"


def _without_lines(call: Call) -> str:
    """A call that was refused before anybody could say what it is."""
    return call.refused.message if call.refused is not None else call.run_id


def _tags(call: Call) -> Iterator[str]:
    yield call.outcome
    if _is_denied(call):
        yield "denied"
    if call.asked:
        yield "asked"
    if call.kind in ("mutating", "destructive", "unparsed"):
        yield "changes"


def _marks(call: Call) -> Iterator[str]:
    if call.kind:
        yield _mark(call.kind.replace("_", " "), call.kind)
    if call.decision:
        action, _, by = call.decision.partition(" by ")
        yield _mark(call.decision, f"{action} {by}")
    if call.launched is not None:
        yield _mark(call.launched.tier.name)
    elif call.door == "assess":
        yield _mark("judged only")
    if _is_denied(call):
        yield _mark("denied", "refuse")
    if call.refused is not None:
        yield _mark(call.refused.code, "exit-bad")
    elif call.finished is not None:
        bad = "exit-bad" if call.outcome == "failed" else ""
        yield _mark(call.finished.signal or f"exit {call.finished.exit_code}", bad)
    yield _mark(_duration(_seconds(call)) if call.finished else "", "time")


def _mark(text: str, kind: str = "") -> str:
    return f'<span class="mark {escape(kind)}">{escape(text)}</span>'


def _no(call: Call) -> Iterator[str]:
    """Everything that somebody said no to, with what to do about it."""
    if call.refused is not None:
        yield _note(call.refused.message, call.refused.hint, call.refused.code)
    if call.faulted is not None:
        yield _note(call.faulted.message, "", "sandboxd failed")
    if call.is_abandoned:
        yield _note("the client vanished; what ran was killed", "", "abandoned")
    denial = call.finished.denial if call.finished is not None else None
    if denial is not None:
        what = denial.path or denial.host or denial.rule
        sure = "perhaps: " if denial.evidence == "text" else ""
        yield _note(
            f"{sure}{what} ({denial.rule}, evidence {denial.evidence})", denial.hint or "", "denial"
        )
    for one in call.egress:
        yield _note(f"{one.host} ({one.rule})", one.hint, "network")


def _note(text: str, hint: str, title: str) -> str:
    told = f"<br><span class=hint>{escape(hint)}</span>" if hint else ""
    return f'<div class="note no"><b>{escape(title)}</b> {escape(text)}{told}</div>'


def _judgements(call: Call) -> Iterator[str]:
    for line in call.lines:
        if len(call.lines) > 1:
            yield f"<h3>{_clock(line.at)}</h3><pre>{escape(line.text)}</pre>"
        yield from _judgement(line)
    if call.asked:
        yield "<h3>asked a person</h3><ul>"
        for one in call.asked:
            reason = f": {one.reason}" if one.reason else ""
            waited = f" after {_duration(one.answered_at - one.at)}" if one.answered_at else ""
            yield f"<li>{escape(one.answer + reason)}{waited}</li>"
        yield "</ul>"


def _judgement(line: Line) -> Iterator[str]:
    decision = line.decided.decision if line.decided is not None else None
    if decision is None and line.assessed is not None:
        decision = line.assessed.decision
    if decision is not None:
        reasons = "".join(f"<li>{escape(reason)}</li>" for reason in decision.reasons)
        by = f" by {decision.approved_by}" if decision.approved_by else ""
        yield f"<h3>{escape(decision.action.value + by)}</h3><ul>{reasons}</ul>"
    if line.assessed is not None and line.assessed.violations:
        yield "<h3>rules</h3><ul>"
        for one in line.assessed.violations:
            yield f"<li><b>{escape(one.rule)}</b> ({one.risk}): {escape(one.message)}</li>"
        yield "</ul>"


def _output(call: Call) -> Iterator[str]:
    ended = call.finished
    if ended is None:
        return
    for name, text, size in (
        ("stdout", ended.stdout_end, ended.stdout_bytes),
        ("stderr", ended.stderr_end, ended.stderr_bytes),
    ):
        if text:
            cut = size > len(text.encode())
            told = f"the end of {size:,} bytes" if cut else f"{size:,} bytes"
            yield f"<h3>{name}, {told}</h3><pre>{escape(text)}</pre>"


def _facts(call: Call) -> Iterator[str]:
    facts: dict[str, str] = {}
    if call.attribution is not None:
        said = call.attribution
        facts["whose failure"] = f"{said.primary} / {said.origin}: {said.detail or said.reason}"
    if call.launched is not None:
        facts["program"] = call.launched.program
        facts["folder"] = call.launched.cwd
    if call.is_escalated:
        facts["sandbox"] = "none: a person let it run without"
    ended = call.finished
    if ended is not None:
        usage = ended.usage
        facts["used"] = (
            f"{usage.user_s + usage.system_s:.2f} s of processor, "
            f"{usage.max_rss_bytes / 1048576:.0f} MiB at most"
        )
        if ended.limit:
            facts["limit"] = ended.limit
        if ended.survivors:
            facts["left behind"] = f"{ended.survivors} processes, killed"
    looked = ", ".join(one.observation.about for one in call.observed[:12])
    if looked:
        facts["rules looked at"] = looked
    facts["id"] = call.run_id
    yield "<h3>facts</h3><dl>"
    for name, value in facts.items():
        yield f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
    yield "</dl>"


# --------------------------------------------------------------------------- files, approvals


def _files(files: Sequence[FileDiff]) -> Iterator[str]:
    if not files:
        return
    yield "<h2>Files changed</h2>"
    for one in files:
        counts = f"+{one.added} −{one.removed}" if one.diff is not None else "no longer kept"
        note = f" · {escape(one.note)}" if one.note else ""
        yield f'<details class="card file"><summary><code>{escape(one.path)}</code> '
        yield f"<span class=count>{escape(one.operation)} at {_clock(one.at)} · {counts}{note}</span></summary>"
        if one.diff is not None:
            yield f"<pre class=diff>{''.join(map(_diff_line, one.diff.splitlines()))}</pre>"
        else:
            yield "<p class=empty>What it replaced is no longer kept, so there is no diff.</p>"
        yield "</details>"


def _diff_line(line: str) -> str:
    kind = {"+": "a", "-": "d", "@": "h"}.get(line[:1], "")
    if line.startswith(("+++", "---")):
        kind = "h"
    return f'<span class="{kind}">{escape(line) or " "}</span>'


def _approvals(story: Story) -> Iterator[str]:
    asked = [
        (number, call, one) for number, call in enumerate(story.calls, 1) for one in call.asked
    ]
    if not asked:
        return
    yield "<h2>Questions to a person</h2><div class=card><table>"
    yield "<tr><th>when<th>what<th>why<th>answer</tr>"
    for number, call, one in asked:
        text = call.lines[0].text if call.lines else call.run_id
        reason = f": {one.reason}" if one.reason else ""
        yield (
            f'<tr><td class=when>{_clock(one.at)}<td class=mono><a href="#call-{number}">'
            f"{escape(text[:200])}</a><td>{escape('; '.join(one.reasons))}"
            f"<td>{escape(one.answer + reason)}</tr>"
        )
    yield "</table></div>"


# --------------------------------------------------------------------------- words


def _is_denied(call: Call) -> bool:
    denial = call.finished.denial if call.finished is not None else None
    return bool(call.egress) or (denial is not None and denial.evidence != "text")


def _seconds(call: Call) -> float:
    return call.finished.duration_s if call.finished is not None else 0.0


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%H:%M:%S") if at else ""


def _date(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M") if at else "never"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
