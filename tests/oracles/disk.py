"""Files that tests write."""

import json
from pathlib import Path
from typing import Any


def put(path: Path, content: Any) -> Path:
    """Return the file, which has this text, or this value as JSON."""
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path
