"""sandboxd: judge a shell command, confine it in the kernel, return honest output.

This module stays empty of imports: the zygote and the `exec` fast path load it.
"""

__version__ = "0.1.0"
