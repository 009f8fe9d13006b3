"""Stays at the client."""

VALUE = "secret"
