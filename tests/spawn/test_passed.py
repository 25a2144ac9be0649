"""Descriptors made for a leader, and what a helper's status means."""

from __future__ import annotations

import fcntl
import os
import resource

import pytest

from sandboxd.spawn import passed

NAMED = b'{ "child-pid": 4711, "mnt-namespace": 4026532178, "pid-namespace": 4026532179 }\n'
OLD = b'{ "child-pid": 4711 }\n'
ENDED = b'{ "exit-code": 0 }\n'


def test_contents_are_read_from_the_start_and_closed_on_exec() -> None:
    made = passed.make({3: b"a" * 200_000, 4: b""})
    try:
        assert os.read(made[3], 300_000) == b"a" * 200_000
        assert os.read(made[4], 1) == b""
        for fd in made.values():
            assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
            assert fd >= passed.SOURCES_FROM
        assert not set(made) & set(made.values())
    finally:
        for fd in made.values():
            os.close(fd)


def test_what_was_said_is_read_again_and_again() -> None:
    made = passed.make({5: NAMED})
    try:
        assert [passed.said(made[5]), passed.said(made[5])] == [NAMED, NAMED]
    finally:
        os.close(made[5])


@pytest.mark.parametrize(
    ("status", "group"),
    [(b"", 0), (NAMED, 4711), (NAMED + ENDED, 4711), (OLD, 4711), (b'{ "child-pid":', 0)],
)
def test_the_programs_group_is_known_once_it_is_named(status: bytes, group: int) -> None:
    assert passed.program_group(status) == group


@pytest.mark.parametrize(("status", "ran"), [(b"", False), (NAMED, False), (NAMED + ENDED, True)])
def test_only_a_program_that_ran_has_an_exit_code(status: bytes, ran: bool) -> None:
    assert passed.has_started_program(status) == ran


def test_no_descriptor_is_left_open_when_there_are_too_many() -> None:
    before = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (passed.SOURCES_FROM, hard))
        with pytest.raises(OSError, match=r"."):
            passed.make({3: b"x"})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) == before
