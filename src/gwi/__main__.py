"""`python -m gwi` is the `gwi` command."""

from gwi.cli.commands import main

if __name__ == "__main__":
    main()
