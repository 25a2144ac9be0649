"""Guarded files: one path rule, checked handles, a ledger of what was seen, edits and patches."""
