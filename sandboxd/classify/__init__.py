"""Classify: what a command would do, read from its text and never by running it.

    text -> lexer (common case) or structure (everything else) -> simple commands
         -> grading by the tables -> worst of all parts -> Verdict

Nothing heavy is imported here: the command line's fast path may import this package.
"""
