"""Translators to what others speak; each is an extra and imports client and protocol only."""
