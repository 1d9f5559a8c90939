"""The page of changes: what the next version will have, as towncrier gathers it from changes/, and the changelog."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

MARK = "<!-- towncrier release notes start -->\n"


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Write the page."""
    if docname != "changes":
        return
    root = Path(app.srcdir).parent
    options = ["--draft", "--version", "Next version", "--date", "not released"]
    command = [sys.executable, "-m", "towncrier", "build", *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    draft = done.stdout[done.stdout.index("## Next version") :]
    text = f"{draft}\n{(root / 'CHANGELOG.md').read_text(encoding='utf-8').partition(MARK)[2]}"
    source[0] += text.replace("](docs/", "](")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the page when it is read, which is each time."""
    app.connect("source-read", read)
    app.connect("env-get-outdated", lambda *_: ["changes"])
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
