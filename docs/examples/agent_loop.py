"""An agent loop in forty lines: the model proposes commands, sandboxd judges, runs and answers.

`model` is any function from the conversation so far to the next command, or None to end its turn.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from sandboxd import Client
from sandboxd.errors import ApprovalDenied, Refusal
from sandboxd.model import Result

Conversation = list[dict[str, str]]


def told(result: Result) -> str:
    """What the model reads: bounded output, and why it failed when it did."""
    text = (result.output.text if result.output else "") or "(no output)"
    if result.denial is not None:
        text += f"\n[the sandbox: {result.denial.rule} {result.denial.path or result.denial.host or ''}]"
    return f"{text}\n[exit code {result.exit_code}]"


def turn(client: Client, model: Callable[[Conversation], str | None], task: str) -> Conversation:
    talk: Conversation = [{"role": "user", "content": task}]
    while (command := model(talk)) is not None:
        talk.append({"role": "assistant", "content": command})
        try:
            answer = told(client.exec(command, merge=True, timeout_s=120))
        except ApprovalDenied as denied:
            answer = f"{denied.message}. {denied.hint}"
            if denied.data and denied.data.get("answer") == "stop":
                break
        except Refusal as refusal:
            answer = f"{refusal.message}. {refusal.hint}"
        talk.append({"role": "tool", "content": answer})
    return talk


if __name__ == "__main__":
    scripted = iter(["ls", "rm -rf /tmp/nothing", "wc -l < README.md", None])
    with Client.spawn(workspace=os.getcwd()) as client:
        for said in turn(client, lambda talk: next(scripted), "How long is the README?"):
            sys.stdout.write(f"{said['role']}: {said['content']}\n")
