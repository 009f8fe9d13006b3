"""Imported by nobody at the client: only inside a function."""

VALUE = "late"
