"""An upload that nobody watches."""

from __future__ import annotations


class NoProgress:
    """Implements UploadProgress without showing anything."""

    def begin(self, files: int, size: int) -> None:
        pass

    def file(self, name: str) -> None:
        pass

    def sent(self, count: int) -> None:
        pass

    def end(self) -> None:
        pass
