"""Archives that an attacker would submit, made in code. Each names the file, its content, and why it is refused."""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

MIB = 1024**2
LONG = 16 * MIB  # of a header: it compresses a thousandfold


@dataclass(frozen=True)
class Hostile:
    """An archive, and a pattern for the reason that the refusal gives."""

    file: str
    content: Callable[[], bytes]
    reason: str


def _block(
    name: bytes, kind: bytes, size: int = 0, *, link: bytes = b"", raw_size: bytes | None = None, tail: bytes = b""
) -> bytes:
    """Return one header block of a tar file. ``raw_size`` replaces the size field, ``tail`` all after "ustar"."""
    field = raw_size if raw_size is not None else b"%011o\0" % size
    head = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + field + b"00000000000\0"
    block = (head + b" " * 8 + kind + link.ljust(100, b"\0") + b"ustar  \0" + tail).ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _data(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 512)


def extended_header(kind: bytes, content: bytes) -> bytes:
    """Return an extended header: a block and its data."""
    return _block(b"././@LongLink", kind, len(content)) + _data(content)


def _field(name: str, value: str) -> bytes:
    """Return a record of a PAX header, which begins with its own length."""
    rest = f" {name}={value}\n".encode()
    length = len(rest)
    while length != len(str(length)) + len(rest):
        length = len(str(length)) + len(rest)
    return str(length).encode() + rest


def tar_of(*blocks: bytes) -> bytes:
    return gzip.compress(b"".join(blocks) + b"\0" * 1024, compresslevel=1)


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", content: bytes = b"") -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, target, len(content)
        archive.addfile(info, io.BytesIO(content))
        end = archive.offset  # before the end-of-archive mark
    return data.getvalue()[:end]


FILE = _block(b"file", tarfile.REGTYPE)


def _pax_sparse() -> bytes:
    """A sparse file (PAX 1.0) whose map has 600,000 entries."""
    fields = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "s", "GNU.sparse.realsize": "9"}
    header = b"".join(_field(name, value) for name, value in fields.items())
    holes = b"600000\n" + b"0\n0\n" * 600_000
    return tar_of(extended_header(tarfile.XHDTYPE, header), _block(b"s", tarfile.REGTYPE, len(holes)), _data(holes))


def _gnu_sparse() -> bytes:
    """A sparse file (old GNU format) that says it has 60 GiB."""
    tail = b"\0" * (386 - 265) + b"%011o\0" % 0 + b"%011o\0" % 0 + b"\0" * 72 + b"\0" + b"%011o\0" % 0o77777777777
    return tar_of(_block(b"sparse", tarfile.GNUTYPE_SPARSE, 0, tail=tail))


def _lzma_alone() -> bytes:
    """A compressed tar file whose dictionary has 4 GiB."""
    packed = lzma.compress(FILE + b"\0" * 1024, format=lzma.FORMAT_ALONE)
    return packed[:1] + struct.pack("<I", 0xFFFFFFFF) + packed[5:]


def _zip(name: str, content: bytes, mode: int = stat.S_IFREG | 0o644, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.compress_type, info.external_attr = method, mode << 16
        archive.writestr(info, content)
    return data.getvalue()


def _with(archive: bytes, *changes: tuple[bytes, int, str, int]) -> bytes:
    """Return a zip file with fields overwritten: after the first ``signature``, at ``offset``, as ``form``."""
    changed = bytearray(archive)
    for signature, offset, form, value in changes:
        struct.pack_into(form, changed, changed.index(signature) + offset, value)
    return bytes(changed)


_LOCAL, _CENTRAL, _END = b"PK\3\4", b"PK\1\2", b"PK\5\6"


def _central_directory(count: int) -> bytes:
    """A zip file whose table of contents names one file ``count`` times."""
    archive = _zip("f", b"")
    start, end = archive.index(_CENTRAL), archive.index(_END)
    table = archive[start:end] * count
    # zip64: the table has more entries than the 16 bits of the old format can count
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(table), start)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, start + len(table), 1)
    last = struct.pack("<4sHHHHIIH", _END, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return archive[:start] + table + end64 + locator + last


def _zip64_size() -> bytes:
    """A zip file that says its file has 2**62 bytes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        info = zipfile.ZipInfo("huge")
        with archive.open(info, "w", force_zip64=True) as file:
            file.write(b"x")
    content = data.getvalue()
    start, end = content.index(_CENTRAL), content.index(_END)
    entry = bytearray(content[start:end])
    struct.pack_into("<II", entry, 20, 0xFFFFFFFF, 0xFFFFFFFF)
    extra = struct.pack("<HHQQ", 1, 16, 2**62, 1)
    struct.pack_into("<H", entry, 30, len(extra))
    entry += extra
    last = bytearray(content[end:])
    struct.pack_into("<I", last, 12, len(entry))
    return content[:start] + bytes(entry) + bytes(last)


def _zip_lzma() -> bytes:
    """A zip file with a file whose LZMA dictionary has 4 GiB."""
    archive = _zip("f", b"x" * 100, method=zipfile.ZIP_LZMA)
    at = archive.index(b"f", archive.index(_LOCAL) + 30) + 1 + 4 + 1  # after the name, version, length and properties
    return archive[:at] + struct.pack("<I", 0xFFFFFFFF) + archive[at + 4 :]


HOSTILE = {
    # headers
    "GNU long name": Hostile(
        "a.tgz",
        lambda: tar_of(extended_header(tarfile.GNUTYPE_LONGNAME, b"n" * LONG), FILE),
        f"a header of {LONG} bytes",
    ),
    "GNU long link": Hostile(
        "a.tgz",
        lambda: tar_of(extended_header(tarfile.GNUTYPE_LONGLINK, b"n" * LONG), FILE),
        f"a header of {LONG} bytes",
    ),
    "PAX header": Hostile(
        "a.tgz",
        lambda: tar_of(extended_header(tarfile.XHDTYPE, _field("path", "n" * LONG)), FILE),
        "longer than the 65536",
    ),
    "PAX global header": Hostile(
        "a.tgz",
        lambda: tar_of(extended_header(tarfile.XGLTYPE, _field("comment", "n" * LONG)), FILE),
        "longer than the 65536",
    ),
    "PAX global headers without end": Hostile(
        "a.tgz",
        lambda: tar_of(
            *(
                extended_header(tarfile.XGLTYPE, b"".join(_field(f"key{n}-{m}", "v") for m in range(110))) + FILE
                for n in range(10)
            )
        ),
        "more than 1000 fields",
    ),
    "PAX headers of headers": Hostile(
        "a.tgz", lambda: tar_of(*[extended_header(tarfile.XHDTYPE, _field("comment", "x"))] * 3000, FILE), "recursion"
    ),
    "number of many digits": Hostile(
        "a.tgz", lambda: tar_of(extended_header(tarfile.XHDTYPE, b"9" * 10_000 + b" path=x\n"), FILE), "integer string"
    ),
    "negative size": Hostile(
        "a.tgz", lambda: tar_of(_block(b"f", tarfile.REGTYPE, raw_size=b"\xff" * 11 + b"\x00")), "negative size"
    ),
    "sparse map": Hostile("a.tgz", _pax_sparse, "MiB of memory|unpacks to more than"),
    "sparse file": Hostile("a.tgz", _gnu_sparse, "unpacks to more than"),
    "dictionary of 4 GiB": Hostile("a.tar", _lzma_alone, "MiB of memory"),
    # names
    "name of 64 KiB": Hostile("a.tgz", lambda: tar_of(_member("n" * 65536)), "a header of 65548 bytes"),
    "name of 60,000 bytes": Hostile("a.tgz", lambda: tar_of(_member("n" * 60_000)), "a name of 60000 bytes; 4096 are"),
    "part of a name": Hostile("a.tgz", lambda: tar_of(_member("d/" + "n" * 256)), "a part of more than 255 bytes"),
    "deep directories": Hostile("a.tgz", lambda: tar_of(_member("d/" * 1000 + "f")), "more than 128 directories deep"),
    "directories without end": Hostile(
        "a.tgz", lambda: tar_of(*(_member(f"{n}/" + "d/" * 100 + "f") for n in range(4))), "members and directories"
    ),
    "NUL": Hostile("a.tgz", lambda: tar_of(extended_header(tarfile.XHDTYPE, _field("path", "a\0b")), FILE), "outside"),
    "name that goes up": Hostile("a.tgz", lambda: tar_of(_member("d/../../f")), "outside"),
    "terminal's control characters": Hostile("a.tgz", lambda: tar_of(_member("../\x1b[2J")), r"\\x1b\[2J"),
    # links and devices
    "link out": Hostile("a.tgz", lambda: tar_of(_member("l", tarfile.SYMTYPE, "/etc/passwd")), "outside"),
    "link of 64 KiB": Hostile(
        "a.tgz", lambda: tar_of(_member("l", tarfile.SYMTYPE, "t" * 65536)), "a header of 65552 bytes"
    ),
    "link of 60,000 bytes": Hostile(
        "a.tgz", lambda: tar_of(_member("l", tarfile.SYMTYPE, "t" * 60_000)), "a link whose target has 60000 bytes"
    ),
    "link with NUL": Hostile(
        "a.tgz",
        lambda: tar_of(extended_header(tarfile.XHDTYPE, _field("linkpath", "a\0b")), _block(b"l", tarfile.SYMTYPE)),
        "null byte",
    ),
    "hard link out": Hostile("a.tgz", lambda: tar_of(_member("l", tarfile.LNKTYPE, "/etc/passwd")), "did not come"),
    "hard link to itself": Hostile("a.tgz", lambda: tar_of(_member("l", tarfile.LNKTYPE, "l")), "did not come"),
    "device": Hostile("a.tgz", lambda: tar_of(_member("zero", tarfile.CHRTYPE)), "neither a file nor a directory"),
    "disk": Hostile("a.tgz", lambda: tar_of(_member("sda", tarfile.BLKTYPE)), "neither a file nor a directory"),
    "pipe": Hostile("a.tgz", lambda: tar_of(_member("pipe", tarfile.FIFOTYPE)), "neither a file nor a directory"),
    # content
    "content": Hostile("a.tgz", lambda: tar_of(_member("zeros", content=bytes(64 * MIB))), "unpacks to more than"),
    "zip content": Hostile("a.zip", lambda: _zip("zeros", bytes(64 * MIB)), "unpacks to more than"),
    # zip files
    "zip link": Hostile("a.zip", lambda: _zip("l", b"t" * LONG, stat.S_IFLNK | 0o777), "the target of the link 'l'"),
    "zip link out": Hostile("a.zip", lambda: _zip("l", b"/etc/passwd", stat.S_IFLNK | 0o777), "outside"),
    "zip name that goes up": Hostile("a.zip", lambda: _zip("../f", b""), "outside"),
    "zip name of 64 KiB": Hostile("a.zip", lambda: _zip("n" * 65535, b""), "a name of 65535 bytes"),
    "central directory": Hostile("a.zip", lambda: _central_directory(200_000), "MiB of memory"),
    "overlapping files": Hostile("a.zip", lambda: _central_directory(400), "members and directories"),
    "central directory elsewhere": Hostile(
        "a.zip", lambda: _with(_zip("f", b""), (_END, 12, "<I", 0xFFFFFF)), "cannot unpack"
    ),
    "zip64 size": Hostile("a.zip", _zip64_size, "unpacks to more than"),
    "zip dictionary of 4 GiB": Hostile("a.zip", _zip_lzma, "MiB of memory"),
    "zip with a password": Hostile(
        "a.zip", lambda: _with(_zip("f", b"x"), (_LOCAL, 6, "<H", 1), (_CENTRAL, 8, "<H", 1)), "password"
    ),
    "zip with an unknown compression": Hostile(
        "a.zip", lambda: _with(_zip("f", b"x"), (_LOCAL, 8, "<H", 77), (_CENTRAL, 10, "<H", 77)), "not supported"
    ),
}
