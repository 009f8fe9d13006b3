"""Measurements of this project and of what one would pick instead: ``make bench``, see docs/performance.md."""
