"""sandboxd: judge a shell command, confine it in the kernel, return honest output.

`sandboxd.Client` and `sandboxd.AsyncClient` are the Python clients. Nothing is imported before it is
asked for: the zygote and the `exec` fast path load this module.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd.client import AsyncClient as AsyncClient
    from sandboxd.client import Client as Client

__all__ = ["AsyncClient", "Client", "__version__"]


def __getattr__(name: str) -> object:
    if name in ("AsyncClient", "Client"):
        from sandboxd import client

        return getattr(client, name)
    raise AttributeError(f"module 'sandboxd' has no attribute {name!r}")
