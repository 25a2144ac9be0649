"""Forms with a read-only verdict, run for real: in a sandbox that allows writing to the workspace
nothing changes there, and in a read-only sandbox none of them so much as tries to write."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from sandboxd.classify.classifier import Classifier, Context
from sandboxd.classify.tables import load_tables
from sandboxd.model import CommandClass, Exit, LaunchPlan, NetworkMode, Verdict
from sandboxd.spawn.launcher import Launcher
from tests.confined import Ground, make_ground, plan_for, run_plan, with_launcher, write

TIER = "namespaces"
FORMS = [
    "ls -la",
    "cat f | sort -r | uniq -c | head -2",
    "sort -u f d/g",
    "grep -rn b . | wc -l",
    "sed -n '1,2p;s/a/b/p' f",
    "awk '{ s += NF } END { print s }' f",
    "find . -type f -name '*.txt' -exec wc -l {} +",
    "find . -name f -print0 | xargs -0 cat",
    "find . -maxdepth 1 -printf '%p %s\\n'",
    "cut -d' ' -f1 f | tr a-z A-Z",
    "diff f d/g; echo $?",
    "head -c 3 f; tail -n +2 f",
    "od -c f | head -1",
    "stat f; file f; du -s .",
    "md5sum f d/g | cut -c1-32",
    "tar tf a.tar",
    "gzip -dc f.gz | cat -A",
    "zcat f.gz",
    "unzip -l a.zip",
    "xxd f | head -1",
    "strings f",
    "jq . j.json",
    'for x in *; do echo "$x"; wc -c "$x"; done 2>/dev/null',
    'while read -r line; do echo "got $line"; done < f',
    "if [ -f f ]; then cat f; else echo none; fi",
    "[[ -f f && -r f ]] && cat f",
    "case $x in a|b) ls ;; *) pwd ;; esac",
    "for ((i = 0; i < 3; i++)); do echo $i; done",
    "x=$(ls | wc -l); echo $((x + 1))",
    "echo $(pwd && ls)",
    "time ls",
    "! grep -q zz f",
    "cat {f,d/g}",
    "cat <<'EOF'\n$(touch planted)\n`touch planted`\nEOF",
    "cat <<EOF\n$(ls)\nEOF",
    'cat <<< "a b"',
    'f() { ls "$@"; }; f -a',
    "(cd d && ls) | sort",
    "cat <(ls) f",
    "ls 2>&1 >/dev/null | cat",
    "ls | tee /dev/null",
    "env | sort | head -1",
    "bash -lc 'ls -la | head -1'",
    "sh -c 'cat f'",
    "printf '%s\\n' a b > /dev/null",
    "test -e f && echo yes",
    "date +%Y; id -u; uname -s; nproc",
    "seq 3 | paste -sd+",
    "comm -12 <(sort f) <(sort d/g)",
    "git -C r log --oneline -1",
    "git -C r status --short",
    "git -C r diff HEAD",
    "git -C r show --stat HEAD",
    "cd r && git branch -a && git log -p | head -5",
    "python3 --version; node --version",
    "sqlite3 -readonly a.db 'select 1'",
    "column -t f; nl f; rev f; tac f; fold -w 2 f",
    "realpath f; readlink -f d; basename /a/b; dirname /a/b",
    "xargs -n1 echo < f",
    "expr 1 + 2; true; : ignored",
    "tree -L 1; rg -n b; fd txt",
]
READS_HOME = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "x": "a"}


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    for ground in make_ground():
        workspace = ground.workspace
        for name in ("f", "d/g", "x.txt"):
            write(f"{workspace}/{name}", "b a\n1 2\na/b\n")
        write(f"{workspace}/j.json", '{"a": 1}\n')
        _prepare(
            workspace,
            "tar cf a.tar f d && gzip -k f && git init -q r && cd r && echo a > t && git add t"
            " && git -c user.name=n -c user.email=e@example.org commit -qm first",
        )
        yield ground


def _prepare(folder: str, text: str) -> None:
    pid = os.spawnlpe(
        os.P_WAIT, "bash", "bash", "-c", f"cd {folder} && {text}", {**os.environ, "LC_ALL": "C"}
    )
    assert pid == 0


@pytest.fixture(scope="module")
def verdicts(ground: Ground) -> dict[str, Verdict]:
    classifier = Classifier(load_tables())
    classifier.warm_up()
    context = Context(
        cwd=ground.workspace,
        path=READS_HOME["PATH"],
        home=ground.home,
        writable_roots=(ground.workspace,),
    )
    found = {form: classifier.classify_text(form, context) for form in FORMS}
    classifier.close()
    return found


def picture(folder: str) -> dict[str, tuple[int, int, int, int]]:
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            seen = os.lstat(path)
            found[path] = (seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ino)
    return found


def run_forms(
    ground: Ground, verdicts: dict[str, Verdict], profile: str
) -> list[tuple[str, Exit, str, bool]]:
    """Every form in a sandbox of its own: its end, its output, whether the workspace changed."""

    async def work(launcher: Launcher) -> list[tuple[str, Exit, str, bool]]:
        found = []
        for form, verdict in verdicts.items():
            before = picture(ground.workspace)
            ended, output = await run_plan(launcher, _plan(ground, form, verdict, profile))
            found.append((form, ended, output, picture(ground.workspace) != before))
        return found

    return with_launcher(lambda launcher: asyncio.ensure_future(work(launcher)))


def _plan(ground: Ground, form: str, verdict: Verdict, profile: str) -> LaunchPlan:
    hardening = {"GIT_OPTIONAL_LOCKS": "0", "GIT_PAGER": "cat"} if verdict.git_hardening else {}
    policy = ground.policy(network=NetworkMode.OFF, profile=profile)
    argv = ["/bin/bash", "--noprofile", "--norc", "-c", form]
    return plan_for(TIER, ground, argv, policy, **{**READS_HOME, **hardening})


def test_the_forms_are_called_readers(verdicts: dict[str, Verdict]) -> None:
    asked = [form for form, one in verdicts.items() if one.class_ is not CommandClass.READ_ONLY]
    assert asked == []


def test_readers_leave_a_writable_workspace_as_it_was(
    ground: Ground, verdicts: dict[str, Verdict]
) -> None:
    done = run_forms(ground, verdicts, "default")
    assert [form for form, _, _, changed in done if changed] == []
    assert len(done) >= 60


def test_readers_do_not_even_try_to_write_in_a_read_only_sandbox(
    ground: Ground, verdicts: dict[str, Verdict]
) -> None:
    done = run_forms(ground, verdicts, "read-only")
    assert [form for form, _, _, changed in done if changed] == []
    assert [
        (form, output) for form, _, output, _ in done if "Read-only file system" in output
    ] == []


def test_this_would_show_a_write(ground: Ground, verdicts: dict[str, Verdict]) -> None:
    writer = {"touch planted; rm planted": next(iter(verdicts.values()))}
    (_, _, output, _), *_ = run_forms(ground, writer, "read-only")
    assert "Read-only file system" in output
    writer = {"touch planted": next(iter(verdicts.values()))}
    (_, _, _, changed), *_ = run_forms(ground, writer, "default")
    assert changed
    os.unlink(f"{ground.workspace}/planted")
