"""Approvals as a callback: the agent's own user interface shows the question and has the answer."""

from __future__ import annotations

import os
import sys

from sandboxd import Client
from sandboxd.errors import ApprovalDenied
from sandboxd.model import ApprovalAsk, ApprovalReply


def approver(ask: ApprovalAsk) -> ApprovalReply:
    """Here a rule stands in for the person: what may be remembered is fine, what destroys is not."""
    sys.stdout.write(f"? {ask.command}\n")
    for start, end in ask.marks:
        sys.stdout.write(f"  because of: {ask.command[start:end]}\n")
    if ask.loses:
        sys.stdout.write(f"  would lose: {os.path.basename(ask.loses)}\n")
    if ask.may_remember:
        return ApprovalReply(answer="session")
    return ApprovalReply(answer="deny", reason="keep the old build, make a new folder")


if __name__ == "__main__":
    with Client.spawn(workspace=os.getcwd(), approver=approver) as client:
        client.exec("mkdir -p build && touch build/old")
        client.exec("touch build/old; ls build")  # a part that was approved is not asked again
        try:
            client.exec("rm -r build")
        except ApprovalDenied as denied:
            sys.stdout.write(f"the model reads: {denied.message}\n")
