"""`python -m turnledger`: the command line, also where its console script is not on the PATH."""

from __future__ import annotations

from turnledger.cli import main

if __name__ == "__main__":
    main()
