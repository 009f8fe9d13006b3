"""The contracts all processes share: message models, Redis key names, error codes.

Client, router and worker import this package and nothing of each other.
"""
