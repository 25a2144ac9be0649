"""`sandboxd exec` as its callers see it, through a daemon and in process alike."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from sandboxd.spawn.waiting import Tty

# --------------------------------------------------------------------------- exit codes, output


def test_output_goes_where_it_came_from_and_the_exit_code_is_the_programs(cli: Any) -> None:
    done = cli.exec("-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_an_argument_vector_meets_no_shell(cli: Any) -> None:
    done = cli.exec("--", "printf", "%s|", "$HOME", "a b", "*", "", "é")
    assert done.stdout == "$HOME|a b|*||é|".encode()


def test_the_working_directory_is_the_callers(cli: Any) -> None:
    folder = cli.workspace / "inner"
    folder.mkdir()
    assert cli.exec("--", "pwd", cwd=folder).stdout == f"{folder}\n".encode()
    assert cli.exec("--cwd", "inner", "--", "pwd").stdout == f"{folder}\n".encode()


def test_a_signal_is_128_and_its_number(cli: Any) -> None:
    assert cli.exec("-c", "kill -TERM $$").returncode == 143


def test_no_output_without_a_final_newline_gains_one(cli: Any) -> None:
    assert cli.exec("--", "printf", "abc").stdout == b"abc"


def test_both_streams_to_one_pipe_keep_their_order(cli: Any) -> None:
    script = "echo 1; sleep 0.2; echo 2 >&2; sleep 0.2; echo 3"
    done = cli.exec("-c", script, stderr=subprocess.STDOUT)
    assert done.stdout == b"1\n2\n3\n"


def test_a_flood_is_bounded_with_true_counts_and_its_end_is_seen(cli: Any) -> None:
    done = cli.exec("--json", "-c", "seq 1 2000000; echo END >&2; exit 3")
    result = json.loads(done.stdout)
    out = result["stdout"]
    source = b"".join(b"%d\n" % number for number in range(1, 2_000_001))
    assert done.returncode == result["exit_code"] == 3
    assert (out["total_bytes"], out["total_lines"]) == (len(source), 2_000_000)
    assert len(out["text"]) < 100_000
    shown = [line for line in out["text"].splitlines() if line.isdigit()]
    assert len(shown) + out["omitted_lines"] == 2_000_000
    assert sum(len(line) + 1 for line in shown) + out["omitted_bytes"] == len(source)
    assert (shown[0], shown[-1]) == ("1", "2000000")
    assert result["stderr"]["text"] == "END\n"


def test_raw_passes_the_bytes_themselves(cli: Any) -> None:
    script = r"printf 'a\rb\033[1mc\377\000d'; printf '\376' >&2"
    done = cli.exec("--raw", "-c", script)
    assert (done.stdout, done.stderr) == (b"a\rb\x1b[1mc\xff\x00d", b"\xfe")


def test_without_raw_text_is_what_a_person_would_see(cli: Any) -> None:
    assert cli.exec("-c", r"printf '10%%\r100%%\n\033[31mred\033[0m\n'").stdout == b"100%\nred\n"


def test_json_is_one_object_on_one_line(cli: Any) -> None:
    done = cli.exec("--json", "--", "echo", "hi")
    assert done.stdout.count(b"\n") == 1
    result = json.loads(done.stdout)
    assert result["stdout"]["text"] == "hi\n"
    assert result["tier"]["kernel"] is True
    assert result["decision"]["action"] == "allow"
    assert result["verdict"]["parsed"] is True
    assert done.stderr == b""


def test_a_background_child_neither_hangs_the_call_nor_survives(cli: Any) -> None:
    mark = f"{300 + os.getpid() % 100}.25"
    start = time.monotonic()
    done = cli.exec("-c", f"sleep {mark} & echo done")
    assert done.stdout == b"done\n"
    assert time.monotonic() - start < 10
    assert subprocess.run(["pgrep", "-f", f"sleep {mark}"], check=False).returncode == 1


# --------------------------------------------------------------------------- time-out


def test_a_timeout_is_124_and_keeps_the_output_so_far(cli: Any) -> None:
    start = time.monotonic()
    done = cli.exec("--timeout", "1", "-c", "trap '' TERM; echo so far; sleep 60")
    assert time.monotonic() - start < 20
    assert (done.returncode, done.stdout) == (124, b"so far\n")
    assert b"stopped after 1 s" in done.stderr


# --------------------------------------------------------------------------- stdin


def test_input_is_passed_through(cli: Any) -> None:
    assert cli.exec("--", "cat", input=b"a\n\x00\xffb").stdout.startswith(b"a\n")
    assert cli.exec("--raw", "--", "cat", input=b"a\n\x00\xffb").stdout == b"a\n\x00\xffb"


def test_a_hundred_megabytes_of_input_arrive_whole(cli: Any) -> None:
    block = os.urandom(1_000_000)
    digest = hashlib.sha256()
    with cli.start("exec", "--approve", "all", "--", "sha256sum") as process:
        for _ in range(100):
            digest.update(block)
            process.stdin.write(block)
        process.stdin.close()
        assert process.stdout.read().split()[0].decode() == digest.hexdigest()
    assert process.returncode == 0


def test_input_that_the_program_does_not_read_is_no_error(cli: Any) -> None:
    done = cli.exec("--", "true", input=b"x" * 5_000_000)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_open_pipe_that_never_ends_does_not_hold_the_call(cli: Any) -> None:
    with cli.start("exec", "--approve", "all", "--", "echo", "hi") as process:
        assert process.stdout.read() == b"hi\n"
        assert process.wait(20) == 0


def test_closed_descriptors_are_dev_null(cli: Any) -> None:
    words = cli.words("exec", "--approve", "all", "-c", "cat; echo out; echo err >&2; exit 4")
    for closing, out in (("<&-", b"out\n"), ("<&- 2>&-", b"out\n"), ("<&- >&- 2>&-", b"")):
        done = subprocess.run(
            ["sh", "-c", f'"$@" {closing}', "sh", *words],
            cwd=cli.workspace,
            env=cli.environment,
            stdout=subprocess.PIPE,
            check=False,
        )
        assert (done.returncode, done.stdout) == (4, out), closing


def test_a_file_as_input_and_a_full_disk_as_output(cli: Any) -> None:
    file = cli.workspace / "in"
    file.write_text("content\n")
    with file.open("rb") as stdin:
        assert cli.exec("--", "cat", stdin=stdin).stdout == b"content\n"
    with open("/dev/full", "wb") as full:
        done = cli.exec("--", "echo", "hi", stdout=full)
    assert done.returncode == 125
    assert b"No space left" in done.stderr


def test_raw_output_reaches_a_slow_reader_whole(cli: Any) -> None:
    script = "head -c 60000000 /dev/zero; echo end"
    with cli.start("exec", "--approve", "all", "--raw", "-c", script) as process:
        time.sleep(1.5)
        size, last = 0, b""
        while chunk := process.stdout.read(1_000_000):
            size, last = size + len(chunk), chunk
            time.sleep(0.005)
        assert process.wait(30) == 0
        assert process.stderr.read() == b""
    assert (size, last[-4:]) == (60_000_004, b"end\n")


def test_raw_output_to_a_full_disk_ends_the_run(cli: Any) -> None:
    with open("/dev/full", "wb") as full:
        done = cli.exec("--raw", "--", "yes", stdout=full)
    assert done.returncode == 125
    assert b"No space left" in done.stderr


def test_a_reader_that_goes_away_ends_a_raw_run(cli: Any) -> None:
    with cli.start("exec", "--approve", "all", "--raw", "--", "yes") as process:
        assert process.stdout.read(4) == b"y\ny\n"
        process.stdout.close()
        assert process.wait(30) == 141


# --------------------------------------------------------------------------- bad input


BAD = [
    (["exec"], 2, "no command"),
    (["exec", "--"], 2, "no command"),
    (["exec", "--frobnicate", "--", "ls"], 2, "--frobnicate"),
    (["exec", "--env", "A=\udcff", "--", "ls"], 2, "not UTF-8"),
    (["exec", "--session", "\udcff", "--", "ls"], 2, "not UTF-8"),
    (["exec", "--profile=\udcff", "--", "ls"], 2, "not UTF-8"),
    (["exec", "--timeout", "soon", "--", "ls"], 2, "--timeout"),
    (["exec", "-c", "ls", "--", "ls"], 2, "both"),
    (["exec", "--profile", "no-such", "--", "ls"], 2, "no-such"),
    (["exec", "--profile", "./no-such.yaml", "--", "ls"], 2, "no-such.yaml"),
    (["exec", "--tier", "no-such", "--", "ls"], 2, "no-such"),
    (["exec", "--min-tier", "no-such", "--", "ls"], 2, "no-such"),
    (["exec", "--tier", "seatbelt", "--", "ls"], 125, "seatbelt"),
    (["exec", "--cwd", "/no/such/folder", "--", "ls"], 125, "directory '/no/such/folder'"),
    (["exec", "--cwd", "/etc/passwd", "--", "ls"], 125, "no folder"),
    (["exec", "--workspace", "/no/such/folder", "--", "ls"], 125, "/no/such/folder"),
    (["exec", "--workspace", "/", "--", "ls"], 125, "root"),
    (["exec", "--session", "../../etc", "--", "ls"], 2, "session id"),
    (["exec", "--approve", "all", "--", "no-such-program"], 127, "no-such-program"),
    (["exec", "--approve", "all", "--", "/no/such/program"], 127, "/no/such/program"),
    (["exec", "--approve", "all", "--", "/etc/passwd"], 126, "/etc/passwd"),
    (["exec", "--approve", "all", "--", "/etc"], 126, "/etc"),
]


@pytest.mark.parametrize(("words", "code", "named"), BAD, ids=lambda value: str(value)[:60])
def test_bad_input_is_one_clear_sentence_and_its_exit_code(
    cli: Any, words: list[str], code: int, named: str
) -> None:
    done = cli(*words)
    told = done.stderr.decode()
    assert (done.returncode, done.stdout) == (code, b"")
    assert named in told
    assert "Traceback" not in told
    assert all(line.startswith("sandboxd: ") for line in told.splitlines())


@pytest.mark.parametrize(("words", "code", "named"), BAD[7:], ids=lambda value: str(value)[:60])
def test_under_json_a_refusal_is_an_object_with_an_origin(
    cli: Any, words: list[str], code: int, named: str
) -> None:
    done = cli(words[0], "--json", *words[1:])
    refusal = json.loads(done.stdout)["error"]
    assert done.returncode == code
    assert named in refusal["message"]
    assert {"code", "origin", "message", "hint", "retryable"} <= set(refusal)


def test_a_folder_that_is_gone_is_named(cli: Any) -> None:
    gone = cli.workspace / "gone"
    gone.mkdir()
    words = cli.words("exec", "--", "ls")
    script = 'cd "$1"; rmdir "$1"; shift; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", str(gone), *words],
        env=cli.environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 125
    assert b"does not exist" in done.stderr


def test_an_argument_that_is_not_utf8_is_refused_by_name(cli: Any) -> None:
    done = cli.exec("--", "echo", os.fsdecode(b"a\xff"))
    assert done.returncode == 2
    assert b"not UTF-8" in done.stderr


def test_a_variable_that_is_not_utf8_is_said_and_left_out(cli: Any) -> None:
    cli.environment["BROKEN"] = os.fsdecode(b"\xff")
    done = cli.exec("-c", "echo ${BROKEN-unset}")
    assert done.stdout == b"unset\n"
    assert b"BROKEN" in done.stderr


def test_without_anybody_to_ask_a_change_is_refused_with_a_hint(cli: Any) -> None:
    done = cli("exec", "--", "rm", "-rf", "something")
    assert done.returncode == 125
    assert b"--approve" in done.stderr
    assert b"Traceback" not in done.stderr


def test_escape_sequences_in_a_name_do_not_reach_the_terminal(cli: Any) -> None:
    done = cli.exec("--", "./a\x1b[2Jb")
    assert b"\x1b" not in done.stderr
    assert b"\\x1b[2J" in done.stderr


# --------------------------------------------------------------------------- environment, session


def test_environment_comes_from_the_caller_and_from_env(cli: Any) -> None:
    cli.environment["FROM_CALLER"] = "1"
    done = cli.exec("--env", "ADDED=2", "-c", "echo $FROM_CALLER $ADDED")
    assert done.stdout == b"1 2\n"


def test_secrets_are_scrubbed_unless_passed(cli: Any) -> None:
    cli.environment["AWS_SECRET_ACCESS_KEY"] = "secret"
    script = "echo ${AWS_SECRET_ACCESS_KEY-scrubbed}"
    assert cli.exec("-c", script).stdout == b"scrubbed\n"
    assert cli.exec("--env-pass", "AWS_SECRET_ACCESS_KEY", "-c", script).stdout == b"secret\n"


def test_tmp_survives_from_call_to_call_in_one_workspace_only(cli: Any, tmp_path: Any) -> None:
    cli.exec("-c", "echo kept > /tmp/note")
    assert cli.exec("--", "cat", "/tmp/note").stdout == b"kept\n"
    other = tmp_path / "other"
    other.mkdir()
    assert cli.exec("--", "cat", "/tmp/note", cwd=other).returncode != 0


def test_the_workspace_is_the_top_of_the_checkout(cli: Any) -> None:
    subprocess.run(["git", "init", "-q", cli.workspace], check=True)
    inner = cli.workspace / "a"
    inner.mkdir()
    assert cli.exec("-c", "echo x > ../top", cwd=inner).returncode == 0
    assert (cli.workspace / "top").read_text() == "x\n"


# --------------------------------------------------------------------------- signals


def run_with_signals(cli: Any, script: str, *numbers: int) -> subprocess.CompletedProcess[bytes]:
    with cli.start("exec", "--approve", "all", "--raw", "-c", script) as process:
        assert process.stdout.read(3) == b"up\n"
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.3)
        out, err = process.communicate(timeout=30)
    return subprocess.CompletedProcess((), process.returncode, out, err)


def test_ctrl_c_goes_to_the_run(cli: Any) -> None:
    assert run_with_signals(cli, "echo up; sleep 60", signal.SIGINT).returncode == 130


def test_a_run_may_handle_ctrl_c_itself(cli: Any) -> None:
    script = "trap 'echo bye; exit 7' INT; echo up; while :; do sleep 0.05; done"
    done = run_with_signals(cli, script, signal.SIGINT)
    assert (done.returncode, done.stdout) == (7, b"bye\n")


def test_a_second_ctrl_c_ends_a_run_that_ignores_the_first(cli: Any) -> None:
    script = "trap '' INT; echo up; sleep 60"
    assert run_with_signals(cli, script, signal.SIGINT, signal.SIGINT).returncode == 130


def test_output_so_far_is_shown_when_the_run_is_ended(cli: Any) -> None:
    script = "echo so far; touch up; sleep 60"
    with cli.start("exec", "--approve", "all", "-c", script) as process:
        while not (cli.workspace / "up").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (143, b"so far\n")


def test_term_ends_the_run(cli: Any) -> None:
    assert (
        run_with_signals(cli, "trap '' TERM; echo up; sleep 60", signal.SIGTERM).returncode == 143
    )


def test_when_the_command_line_is_killed_the_run_dies(cli: Any) -> None:
    mark = f"{400 + os.getpid() % 100}.75"
    with cli.start("exec", "--approve", "all", "--raw", "-c", f"echo up; sleep {mark}") as process:
        assert process.stdout.read(3) == b"up\n"
        process.kill()
    end = time.monotonic() + 20
    while subprocess.run(["pgrep", "-f", f"sleep {mark}"], check=False, stdout=-3).returncode == 0:
        assert time.monotonic() < end, "the run outlived its caller"
        time.sleep(0.05)


# --------------------------------------------------------------------------- terminals


class Terminal:
    """The command line on a terminal of its own."""

    def __init__(self, cli: Any, *words: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cli.workspace)
            os.execvpe(sys.executable, cli.words(*words), cli.environment)
        self.seen = b""

    def until(self, text: bytes, within_s: float = 30) -> bytes:
        """Read until `text` has appeared; returns everything so far."""
        end = time.monotonic() + within_s
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, self.seen
            try:
                self.seen += os.read(self.fd, 65536)
            except OSError:
                raise AssertionError(self.seen) from None
        return self.seen

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def exit_code(self) -> int:
        while True:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.seen += data
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_on_a_terminal_output_is_live(cli: Any) -> None:
    go = cli.workspace / "go"
    script = f"echo first; while [ ! -e {go} ]; do sleep 0.05; done; echo last; printf part; exit 6"
    terminal = Terminal(cli, "exec", "--approve", "all", "-c", script)
    assert b"last" not in terminal.until(b"first\r\n")
    go.touch()
    assert terminal.exit_code() == 6
    assert terminal.seen == b"first\r\nlast\r\npart"


def test_the_users_terminal_is_never_passed_in(cli: Any) -> None:
    """The run's terminal is another one, under every name it has."""
    code = (
        "import os\n"
        "for fd in (0, 1, 2, os.open('/dev/tty', os.O_RDWR)):\n"
        "    print(os.isatty(fd), os.fstat(fd).st_dev, os.fstat(fd).st_rdev)"
    )
    terminal = Terminal(cli, "exec", "--approve", "all", "--", sys.executable, "-I", "-c", code)
    users = Tty.of(terminal.fd)
    assert terminal.exit_code() == 0
    lines = terminal.seen.decode().split("\r\n")[:4]
    assert [line.split()[0] for line in lines] == ["True"] * 4
    assert f"True {users.dev} {users.rdev}" not in lines


def test_sequences_that_forge_do_not_reach_the_terminal(cli: Any) -> None:
    script = r"printf 'a\033]0;owned\007b\033[2Jc\n'"
    terminal = Terminal(cli, "exec", "--approve", "all", "-c", script)
    assert terminal.exit_code() == 0
    assert terminal.seen == b"ab\x1b[2Jc\r\n"


def test_a_person_at_the_terminal_is_asked_and_answers_yes(cli: Any) -> None:
    (cli.workspace / "victim").touch()
    terminal = Terminal(cli, "exec", "--", "rm", "victim")
    shown = terminal.until(b"Allow it?").decode()
    assert "rm victim" in shown
    assert "tier:" in shown
    assert (cli.workspace / "victim").exists()
    terminal.type(b"y")
    assert terminal.exit_code() == 0
    assert not (cli.workspace / "victim").exists()


def test_a_person_who_says_no_is_obeyed(cli: Any) -> None:
    (cli.workspace / "victim").touch()
    terminal = Terminal(cli, "exec", "--", "rm", "victim")
    terminal.until(b"Allow it?")
    terminal.type(b"qn")
    assert terminal.exit_code() == 125
    assert (cli.workspace / "victim").exists()


def test_what_was_typed_ahead_is_no_answer(cli: Any) -> None:
    (cli.workspace / "victim").touch()
    terminal = Terminal(cli, "exec", "--", "rm", "victim")
    terminal.type(b"yyyy\n")
    terminal.until(b"Allow it?")
    time.sleep(0.3)
    assert (cli.workspace / "victim").exists()
    terminal.type(b"n")
    assert terminal.exit_code() == 125


def test_ctrl_c_at_the_question_is_130_and_runs_nothing(cli: Any) -> None:
    (cli.workspace / "victim").touch()
    terminal = Terminal(cli, "exec", "--", "rm", "victim")
    terminal.until(b"Allow it?")
    terminal.type(b"\x03")
    assert terminal.exit_code() == 130
    assert (cli.workspace / "victim").exists()


def test_the_command_cannot_draw_another_question(cli: Any) -> None:
    terminal = Terminal(cli, "exec", "--", "rm", "\x1b[2Jharmless\r")
    shown = terminal.until(b"Allow it?")
    assert b"\x1b[2J" not in shown
    terminal.type(b"n")
    assert terminal.exit_code() == 125


def test_a_weaker_tier_is_never_silent(cli: Any) -> None:
    done = cli.exec("--tier", "containment", "--", "true")
    assert done.returncode == 0
    assert b"containment" in done.stderr
    assert b"no kernel boundary" in done.stderr
