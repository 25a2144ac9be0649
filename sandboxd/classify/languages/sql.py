"""SQL text: one plain SELECT reads; a word that drops or empties is destructive; else mutating.

The text is first stripped of literals, quoted names and comments, so that `'drop table'` inside
a string means nothing. Functions that write, load or run are refused by name, and psql's and
sqlite's own dot and backslash commands are a closed list. Sources: PostgreSQL, SQLite, MySQL docs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import NOTHING, Context, Finding, destructive, joined, mutating
from sandboxd.classify.wrappers import literal_bodies
from sandboxd.model import CommandClass, Word

_LITERAL = re.compile(r"'(?:[^'\\]|'')*'")
_NAME = re.compile(r'"(?:[^"\\]|"")*"|`[^`]*`')
_READERS = frozenset(("select", "show", "explain", "describe", "desc", "values", "table", "use"))
_DESTROYS = re.compile(r"\b(?:drop|truncate|delete)\b", re.IGNORECASE)
_UPDATE = re.compile(r"\bupdate\b(?!.*\bwhere\b)", re.IGNORECASE | re.DOTALL)
_ALTER_DROP = re.compile(r"\balter\b.*\bdrop\b", re.IGNORECASE | re.DOTALL)
_WRITING_WORDS = re.compile(
    r"\b(?:into|insert|update|delete|merge|create|alter|drop|truncate|copy|call|do|execute|prepare|lock"
    r"|grant|revoke|vacuum|analyze|analyse|reindex|refresh|set|reset|load|handler|outfile|dumpfile|attach"
    r"|detach|pragma|replace|import|for)\b",
    re.IGNORECASE,
)
_CALL = re.compile(r"\b([A-Za-z_][A-Za-z0-9_.]*)\s*\(")
_SAFE_CALLS = frozenset(
    [
        "count",
        "sum",
        "avg",
        "min",
        "max",
        "total",
        "group_concat",
        "string_agg",
        "array_agg",
        "json_agg",
        "jsonb_agg",
        "coalesce",
        "nullif",
        "ifnull",
        "iif",
        "length",
        "char_length",
        "lower",
        "upper",
        "trim",
        "ltrim",
        "rtrim",
        "substr",
        "substring",
        "left",
        "right",
        "concat",
        "concat_ws",
        "round",
        "ceil",
        "ceiling",
        "floor",
        "abs",
        "mod",
        "power",
        "sqrt",
        "greatest",
        "least",
        "cast",
        "date",
        "time",
        "datetime",
        "julianday",
        "strftime",
        "unixepoch",
        "now",
        "current_timestamp",
        "current_date",
        "date_trunc",
        "date_part",
        "extract",
        "age",
        "to_char",
        "to_date",
        "to_timestamp",
        "make_date",
        "interval",
        "in",
        "exists",
        "any",
        "all",
        "some",
        "not",
        "and",
        "or",
        "case",
        "when",
        "values",
        "over",
        "partition",
        "row_number",
        "rank",
        "dense_rank",
        "ntile",
        "lag",
        "lead",
        "first_value",
        "last_value",
        "distinct",
        "json_extract",
        "json_array_length",
        "json_each",
        "json_object",
        "json_array",
        "jsonb_array_elements",
        "jsonb_object_keys",
        "unnest",
        "generate_series",
        "instr",
        "position",
        "strpos",
        "replace",
        "printf",
        "format",
        "hex",
        "quote",
        "typeof",
        "random",
        "row",
        "array",
        "pg_size_pretty",
        "pg_total_relation_size",
        "pg_relation_size",
        "pg_database_size",
        "pg_table_size",
        "version",
        "current_database",
        "current_user",
        "current_schema",
        "database",
        "user",
        "from",
        "join",
        "on",
        "where",
        "having",
        "select",
        "as",
        "using",
        "filter",
        "within",
        "group",
        "by",
        "order",
        "union",
        "except",
        "intersect",
        "with",
        "limit",
        "offset",
        "then",
        "else",
        "is",
        "like",
        "between",
        "numeric",
        "decimal",
        "varchar",
        "char",
        "year",
        "month",
        "day",
        "hour",
        "minute",
    ]
)
_PSQL_READS = re.compile(
    r"\\(?:d[A-Za-z]*[S+]*|l[+]?|conninfo|z|sf|sv|x|q|\?)(?:\s+[\w.*?\"]+)*\s*;?\s*\Z"
)
_DOT_READS = frozenset(
    [
        ".tables",
        ".schema",
        ".headers",
        ".header",
        ".mode",
        ".indexes",
        ".indices",
        ".databases",
        ".fullschema",
        ".show",
        ".width",
        ".help",
        ".separator",
        ".nullvalue",
        ".timer",
        ".quit",
        ".exit",
        ".dbinfo",
        ".stats",
        ".eqp",
        ".explain",
        ".echo",
        ".bail",
        ".dump",
        ".lint",
        ".print",
    ]
)


def grade_sql(text: str) -> Finding:
    """The finding for a literal SQL text of any number of statements."""
    bare = _stripped(text)
    if bare is None:
        return _worst_guess(text, "the SQL text is not understood")
    statements = [piece.strip() for piece in bare.split(";") if piece.strip()]
    return joined(_statement(statement) for statement in statements)


def _stripped(text: str) -> str | None:
    """The text without string literals and quoted names; None when that cannot be told."""
    if "--" in text or "/*" in text or "#" in text or "$" in text or "\\" in text:
        return None
    bare = _LITERAL.sub(" 0 ", text)
    bare = _NAME.sub(" q ", bare)
    return None if re.search(r"['\"`]", bare) else bare


def _worst_guess(text: str, why: str) -> Finding:
    if _DESTROYS.search(text):
        return destructive("the SQL text drops, empties or deletes", "sql")
    return mutating(why, "sql")


def _statement(statement: str) -> Finding:
    first = statement.split(None, 1)[0].lower()
    if first in ("drop", "truncate", "delete") or _ALTER_DROP.search(statement):
        return destructive("the SQL text drops, empties or deletes", "sql")
    if _UPDATE.search(statement) and first in ("update", "with"):
        return destructive("the SQL text updates every row", "sql")
    if first == "with" and re.search(r"\bdelete\b", statement, re.IGNORECASE):
        return destructive("the SQL text deletes", "sql")
    if first == "explain" and _DESTROYS.search(statement):
        return destructive("EXPLAIN of a statement that deletes may run it", "sql")
    if first not in _READERS and first != "with":
        return mutating("the SQL text is not a plain SELECT", "sql")
    if first not in ("show", "describe", "desc") and _WRITING_WORDS.search(statement):
        return mutating("the SQL text holds a word that writes", "sql")
    return _calls(statement)


def _calls(statement: str) -> Finding:
    for name in _CALL.findall(statement):
        if name.lower().rsplit(".", 1)[-1] not in _SAFE_CALLS or "." in name:
            return mutating(f"the SQL function {name} is not known to only read", "sql")
    return NOTHING


def _texts(words: Iterable[Word], grader: str) -> Finding:
    found = []
    for word in words:
        if not word.is_literal:
            found.append(mutating("the SQL text is only known when it runs", "sql"))
        else:
            found.append(_one_text(word.text, grader))
    return joined(found)


def _one_text(text: str, grader: str) -> Finding:
    if grader == "psql" and text.lstrip().startswith("\\"):
        if _PSQL_READS.match(text.strip()):
            return NOTHING
        return mutating("psql's own command is not known to only read", "sql")
    if grader == "sqlite" and text.lstrip().startswith("."):
        return _dot_command(text.strip())
    return grade_sql(text)


def _dot_command(text: str) -> Finding:
    words = text.split()
    plain = re.fullmatch(r"[\w .,%*\"'-]*", text) is not None
    if words[0] in _DOT_READS and plain:
        return NOTHING
    return mutating(f"sqlite's own command {words[0]} is not known to only read", "sql")


def _fed(context: Context, grader: str) -> list[Finding]:
    """Statements that come by here-document or pipe."""
    bodies = literal_bodies(context.command)
    found = [mutating("the SQL text comes from its input", "sql")]
    for body in bodies:
        found.append(at_worst(_worst_guess(body, "the SQL text comes from its input")))
    return found


def at_worst(finding: Finding) -> Finding:
    return finding if finding.class_ is not CommandClass.READ_ONLY else NOTHING


def psql(arguments: Arguments, context: Context) -> Finding:
    """`psql -c TEXT`; without a text the statements come from standard input."""
    texts = arguments.values("-c", "--command")
    found = [
        _connection(word) for word in (*arguments.operands, *arguments.values("-d", "--dbname"))
    ]
    if texts:
        found.append(_texts(texts, "psql"))
    elif not arguments.has("-l", "--list"):
        found += _fed(context, "psql")
    return joined(found)


_HOST_IN_CONNECTION = re.compile(r"(?:://(?:[^@/]*@)?|\bhost(?:addr)?\s*=\s*)([A-Za-z0-9.-]+)")


def _connection(word: Word) -> Finding:
    """A connection string names the host that is asked."""
    if not word.is_literal:
        return mutating("which database is asked is only known when it runs", "sql")
    return Finding(hosts=tuple(_HOST_IN_CONNECTION.findall(word.text)))


def mysql(arguments: Arguments, context: Context) -> Finding:
    """`mysql -e TEXT`."""
    texts = arguments.values("-e", "--execute")
    return _texts(texts, "mysql") if texts else joined(_fed(context, "mysql"))


def sqlite(arguments: Arguments, context: Context) -> Finding:
    """`sqlite3 FILE TEXT`: a SELECT does not create or change the file when it exists."""
    texts = arguments.operands[1:]
    if not texts:
        return joined(_fed(context, "sqlite"))
    file = arguments.operands[0]
    found = [_texts(texts, "sqlite")]
    path = context.path(file.text) if file.is_literal else None
    if not arguments.has("-readonly") and (path is None or not context.facts.exists(path)):
        found.append(mutating("sqlite3 creates a database that does not exist"))
    return joined(found)
