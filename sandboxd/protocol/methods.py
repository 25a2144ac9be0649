"""THE table of the protocol: one row per method; everything else is derived from it.

A row names the structs of its parameters and result, who sends it, and the handler's name in
`daemon/service.py`. The schema, `docs/protocol.md`, the dispatch and the tests read this table,
so a method that is not a row does not exist.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from sandboxd.assess.replaying import Replayed
from sandboxd.events.answers import EventPage, Verification
from sandboxd.events.statistics import Statistics
from sandboxd.model import ApprovalAsk, ApprovalReply, ExecRequest, Result, Verdict
from sandboxd.protocol import event_messages as em
from sandboxd.protocol import file_messages as f
from sandboxd.protocol import messages as m


class Direction(StrEnum):
    """Who sends it, and whether an answer is owed."""

    REQUEST = "client -> server, answered"
    NOTICE = "client -> server, not answered"
    EVENT = "server -> client, not answered"
    QUESTION = "server -> client, answered"


class Method(Struct, frozen=True):
    name: str
    direction: Direction
    params: type[Struct]
    result: type[Struct] | None
    handler: str | None
    """Method of `Service`; None for what the server sends."""
    summary: str


METHODS: tuple[Method, ...] = (
    Method("initialize", Direction.REQUEST, m.Initialize, m.Initialized, "initialize",
           "Open or join a session; says which tier its commands get."),
    Method("classify", Direction.REQUEST, m.Classify, Verdict, "classify",
           "What a command would do. Runs nothing, refuses nothing."),
    Method("command.exec", Direction.REQUEST, ExecRequest, Result, "command_exec",
           "Run one command through the whole gate; answered when nothing of it is left."),
    Method("command.write", Direction.REQUEST, m.CommandWrite, m.Done, "command_write",
           "Input for a run that was started with `stdin_open`."),
    Method("command.terminate", Direction.REQUEST, m.CommandTerminate, m.Done, "command_terminate",
           "Send a signal to a run's process group."),
    Method("command.resize", Direction.REQUEST, m.CommandResize, m.Done, "command_resize",
           "Tell a run's pty its new size."),
    Method("terminal.start", Direction.REQUEST, m.TerminalStart, m.TerminalStarted, "terminal_start",
           "Start a terminal that outlives the call, through the whole gate."),
    Method("terminal.write", Direction.REQUEST, m.TerminalWrite, m.Done, "terminal_write",
           "Type into a terminal; a line that a shell would run is judged like a command."),
    Method("terminal.read", Direction.REQUEST, m.TerminalRead, m.TerminalReading, "terminal_read",
           "What it has printed since the last read, and what it waits for."),
    Method("terminal.resize", Direction.REQUEST, m.TerminalResize, m.Done, "terminal_resize",
           "Tell a terminal its new size."),
    Method("terminal.kill", Direction.REQUEST, m.TerminalKill, m.Done, "terminal_kill",
           "End a terminal's tree, or send a signal to what is in its foreground."),
    Method("terminal.list", Direction.REQUEST, m.Empty, m.TerminalListing, "terminal_list",
           "The terminals of this session."),
    Method("terminal.attach", Direction.REQUEST, m.TerminalNamed, m.Done, "terminal_attach",
           "Hear every byte of a terminal from now on; answered at its end, or cancelled to detach."),
    Method("approval.list", Direction.REQUEST, m.Empty, m.ApprovalListing, "approval_list",
           "What waits for a person's answer, oldest first, over all sessions."),
    Method("approval.resolve", Direction.REQUEST, m.ApprovalResolve, m.ApprovalResolved, "approval_resolve",
           "Answer a question for a person; the first answer counts."),
    Method("approval.attach", Direction.REQUEST, m.Empty, m.Done, "approval_attach",
           "Be told what waits (`approval.pending`), for as long as the call lasts; cancel it to detach."),
    Method("fs.read", Direction.REQUEST, f.FsRead, f.FsReading, "fs_read",
           "Lines of a text file, or a picture; the file counts as seen from then on."),
    Method("fs.write", Direction.REQUEST, f.FsWrite, f.FsChanged, "fs_write",
           "Make a text the whole content of a file, new or seen before; atomic."),
    Method("fs.edit", Direction.REQUEST, f.FsEdit, f.FsChanged, "fs_edit",
           "Replace text in a file that was seen, all edits or none."),
    Method("fs.copy", Direction.REQUEST, f.FsCopy, f.FsChanged, "fs_copy",
           "Copy a file's content, whatever it is."),
    Method("fs.patch", Direction.REQUEST, f.FsPatch, f.FsPatched, "fs_patch",
           "Apply a patch to all its files or to none."),
    Method("fs.undo", Direction.REQUEST, f.FsUndo, f.FsPatched, "fs_undo",
           "Take back changes that the fs methods have made."),
    Method("fs.changes", Direction.REQUEST, m.Empty, f.FsChanges, "fs_changes",
           "The changes of this workspace that can be taken back."),
    Method("fs.list", Direction.REQUEST, f.FsList, f.FsListing, "fs_list",
           "What is in a folder."),
    Method("fs.glob", Direction.REQUEST, f.FsGlob, f.FsGlobbed, "fs_glob",
           "Files whose names match."),
    Method("fs.grep", Direction.REQUEST, f.FsGrep, f.FsGrepped, "fs_grep",
           "Files and lines that match."),
    Method("cancel", Direction.NOTICE, m.Cancel, None, "cancel",
           "End a running call by the id of its request."),
    Method("tier.list", Direction.REQUEST, m.Empty, m.TierListing, "tier_list",
           "Every tier, really probed, with cause and remedy where it is not to be had."),
    Method("profile.show", Direction.REQUEST, m.ProfileShow, m.ProfileShown, "profile_show",
           "The merged profile with the file and line of each value; with a tier its launch plan."),
    Method("profile.explain", Direction.REQUEST, m.ProfileExplain, m.Explanation, "profile_explain",
           "What would happen to a path, a host or a command, which line decides, what to change."),
    Method("session.list", Direction.REQUEST, m.Empty, m.SessionListing, "session_list",
           "The sessions this server holds."),
    Method("session.close", Direction.REQUEST, m.SessionClose, m.Done, "session_close",
           "Forget a session: its approvals, kept output and private temporary folder."),
    Method("output.read", Direction.REQUEST, m.OutputRead, m.OutputPart, "output_read",
           "Read what a reply left out, by line or byte."),
    Method("intent.assess", Direction.REQUEST, em.IntentAssess, em.IntentAssessment, "intent_assess",
           "Judge a call of the caller's own tool, by the rules of commands and files. Runs nothing."),
    Method("event.query", Direction.REQUEST, em.EventQuery, EventPage, "event_query",
           "Read the event log: what was asked, judged, decided, launched, and how it ended."),
    Method("event.verify", Direction.REQUEST, m.Empty, Verification, "event_verify",
           "Read the whole event log again and hold it against its hash chain."),
    Method("event.changes", Direction.REQUEST, em.EventChanges, em.ChangeListing, "event_changes",
           "What file operations of a session changed, as differences, while that is kept."),
    Method("event.replay", Direction.REQUEST, em.EventReplay, Replayed, "event_replay",
           "Judge a recorded session again under other rules; runs and looks at nothing."),
    Method("stats", Direction.REQUEST, em.StatsQuery, Statistics, "stats",
           "How calls ended and whose the failures were, by reason, day and session."),
    Method("status", Direction.REQUEST, m.Empty, m.Status, "status",
           "The server's own state."),
    Method("command.output", Direction.EVENT, m.CommandOutput, None, None,
           "Live output of a run that asked for `stream`."),
    Method("command.state", Direction.EVENT, m.CommandState, None, None,
           "A run has started, stops for input or by job control, goes on, or has ended."),
    Method("terminal.output", Direction.EVENT, m.TerminalOutput, None, None,
           "Bytes of a terminal that this connection is attached to."),
    Method("approval.pending", Direction.EVENT, ApprovalAsk, None, None,
           "A question for an attached approver; answer it with `approval.resolve`."),
    Method("approval.resolved", Direction.EVENT, m.ApprovalResolved, None, None,
           "A question that this client was asked needs no answer any more."),
    Method("approval.request", Direction.QUESTION, ApprovalAsk, ApprovalReply, None,
           "Ask a person; only sent to clients that declared `approvals`."),
)  # fmt: skip

BY_NAME: dict[str, Method] = {method.name: method for method in METHODS}
