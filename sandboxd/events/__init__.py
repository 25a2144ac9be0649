"""What happened, kept: the kinds of event, and the append-only log that holds them.

Only `sandboxd.pipeline` appends. Importing this package loads nothing else.
"""
