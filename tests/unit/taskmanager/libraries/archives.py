"""Archives for tests, made in memory."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile


def regular(name: str, content: bytes = b"", mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    return info, content


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def tar(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def zipped(*members: tuple[str, bytes, int]) -> bytes:
    """Name, content and mode (with the file's type) of each member."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (mode if stat.S_IFMT(mode) else mode | stat.S_IFREG) << 16
            archive.writestr(info, content)
    return data.getvalue()
