"""The file that SQLite opens for a name or URI."""

from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

URI = "file:"


def file_of(name: str) -> Path | None:
    """Return the file as an absolute path, or None for an in-memory or temporary database."""
    if name in ("", ":memory:"):
        return None
    if not name.startswith(URI):
        return Path(name).absolute()
    parts = urlsplit(name)
    query = parse_qs(parts.query)
    in_memory = query.get("mode") == ["memory"] or query.get("vfs") == ["memdb"]
    if in_memory or parts.path in ("", ":memory:"):
        return None
    return Path(unquote(parts.path)).absolute()


def absolute_name(name: str) -> str:
    """Return a name or URI of the same file that does not depend on the current directory."""
    file = file_of(name)
    if file is None or not name.startswith(URI):
        return str(file or name)
    return urlsplit(name)._replace(netloc="", path=quote(str(file))).geturl()
