"""macOS: the few calls of its own that sandboxd makes. Imports where nothing of it exists, too.

Sources: libproc.h (proc_listchildpids), getpeereid(3), unix(4) LOCAL_PEERPID. Not run on a Mac by us;
`library` is handed in so that everything around it can be tried elsewhere.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

IS_HERE = os.uname().sysname == "Darwin"
MAX_CHILDREN = 4096


@functools.cache
def _library() -> Any:
    return ctypes.CDLL("/usr/lib/libproc.dylib", use_errno=True)


def children(pid: int, library: Any = None) -> list[int]:
    """Direct children of a process, by libproc; none when it is gone or cannot be asked."""
    try:
        listed = (library or _library()).proc_listchildpids
    except (OSError, AttributeError):
        return []
    pids = (ctypes.c_int * MAX_CHILDREN)()
    count = listed(ctypes.c_int(pid), pids, ctypes.sizeof(pids))
    return list(pids[: max(0, min(int(count), MAX_CHILDREN))])
