"""Print the machine's lists of Debian packages as lists of their sources: ``python3 tools/deb_sources.py``."""

from __future__ import annotations

import re
from pathlib import Path

_APT = Path("/etc/apt")


def source_lines(text: str, *, is_deb822: bool) -> list[str]:
    """Return the lines ``deb-src …`` for the entries of one file, in the old form or in that of deb822."""
    if not is_deb822:
        return [f"deb-src{line.strip()[3:]}" for line in text.splitlines() if re.match(r"\s*deb\s", line)]
    found = []
    for stanza in re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n?", "", text)):
        fields = dict(re.findall(r"(?m)^([A-Za-z-]+):[ \t]*(.*)$", stanza))
        if "deb" not in fields.get("Types", "").split() or fields.get("Enabled") == "no":
            continue
        key = fields.get("Signed-By", "").strip()
        options = f"[signed-by={key}] " if key.startswith("/") else ""
        components = fields.get("Components", "")
        found += [
            f"deb-src {options}{uri} {suite} {components}".rstrip()
            for uri in fields.get("URIs", "").split()
            for suite in fields.get("Suites", "").split()
        ]
    return found


def main() -> None:
    lists = sorted((_APT / "sources.list.d").glob("*.list"))
    for path in [_APT / "sources.list", *lists, *sorted((_APT / "sources.list.d").glob("*.sources"))]:
        if path.exists():
            print("\n".join(source_lines(path.read_text("utf-8"), is_deb822=path.suffix == ".sources")))


if __name__ == "__main__":
    main()
