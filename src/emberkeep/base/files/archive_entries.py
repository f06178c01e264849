"""Bounds on what describes the members of an archive: headers, names and link targets.

Content is read in pieces. But the standard library reads headers, names and link targets whole, whatever length they
state, and these can be compressed a thousandfold.
"""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
import zlib
from tarfile import (  # type: ignore[attr-defined]  # the first is missing in the type information
    EOFHeaderError,
    HeaderError,
    ReadError,
)
from typing import Self

DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # a compression that Python does not know
    RuntimeError,  # a zip file that needs a password
    UnicodeError,
    ValueError,
)
"""What the standard library raises for an archive that is damaged or that it cannot read, beside OSError."""
LONGEST_PATH = 4096  # bytes, of a name or a link target: the kernel's limit
_LONGEST_NAME_HEADER = 2 * LONGEST_PATH
_LONGEST_PAX_HEADER = 64 * 1024  # bytes; tarfile needs time that grows with the square of it
_MOST_GLOBAL_FIELDS = 1000
_NAME_HEADERS = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_PAX_HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)


class UnacceptableHeader(tarfile.TarError):
    """A header is longer than is allowed, or has a negative size.

    This is not a ReadError, because after a ReadError tarfile would try other compressions.
    """


class _Header(tarfile.TarInfo):
    """The header of a tar file's member: of bounded length, and an error if it is truncated or damaged.

    Without this class, tarfile takes a damaged header for the end of the archive.
    """

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        try:
            header = super().fromtarfile(tarfile)
        except EOFHeaderError:
            raise  # the end-of-archive mark
        except HeaderError as error:
            raise ReadError(f"it is truncated or damaged ({error})") from error
        if len(tarfile.pax_headers) > _MOST_GLOBAL_FIELDS:
            raise UnacceptableHeader(f"its global headers have more than {_MOST_GLOBAL_FIELDS} fields")
        return header

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Parse a block, before the rest of the header is read. Raises UnacceptableHeader."""
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0:
            raise UnacceptableHeader("a member has a negative size")
        longest = None
        if header.type in _NAME_HEADERS:
            longest = _LONGEST_NAME_HEADER
        elif header.type in _PAX_HEADERS:
            longest = _LONGEST_PAX_HEADER
        if longest is not None and header.size > longest:
            raise UnacceptableHeader(f"a header of {header.size} bytes is longer than the {longest} that are allowed")
        return header


class TarMembers(tarfile.TarFile):
    """A tar file whose members are read one after the other with ``next``, each with bounded headers.

    Unlike its base class, it does not keep the members that it has read.
    """

    tarinfo = _Header
    members: list[tarfile.TarInfo]

    def next(self) -> tarfile.TarInfo | None:
        self.members = []
        return super().next()


def zip_link_target(archive: zipfile.ZipFile, link: zipfile.ZipInfo) -> str:
    """Return the target of a symbolic link. Raises BadZipFile if it is too long."""
    with archive.open(link) as content:
        target = content.read(LONGEST_PATH + 1)
    if len(target) > LONGEST_PATH:
        raise zipfile.BadZipFile(
            f"the target of the link {link.filename[:100]!r} is longer than the {LONGEST_PATH} bytes that are allowed"
        )
    return target.decode()
