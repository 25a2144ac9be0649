"""What the handlers of one connection share: whose it is, what it may do, its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxd.daemon.calls import Caller
from sandboxd.daemon.host import Host
from sandboxd.errors import SessionUnknown
from sandboxd.protocol import messages as m

if TYPE_CHECKING:
    from sandboxd.sessions import Session


class Handlers:
    """The beginning of a connection's `Service`; each group of methods adds its handlers."""

    def __init__(self, host: Host, caller: Caller) -> None:
        self._host = host
        self._caller = caller
        self._opened: Session | None = None
        self._capabilities = m.Capabilities()

    def _session(self) -> Session:
        """The session of `initialize`. Raises SessionUnknown before that and after its end."""
        if self._opened is None:
            raise SessionUnknown("no session is open yet", hint="call `initialize` first")
        if self._opened.shared.is_closed:
            raise SessionUnknown(
                "this session has been closed", hint="connect again for another one"
            )
        return self._opened
