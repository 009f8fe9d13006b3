"""``python -m readie``: the same as the ``readie`` command."""

from readie.cli import main

if __name__ == "__main__":
    main()
