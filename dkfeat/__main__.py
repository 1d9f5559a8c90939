"""``python -m dkfeat``: the command, if its script is not on the path."""

from __future__ import annotations

from dkfeat.cli import main

if __name__ == "__main__":
    main()
