"""Write out the files that the script has left open. Python does so when it frees a script's variables at its end.

The driver ends its process without freeing them: threads may still use them.
"""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import lzma
import sys
import tarfile
import zipfile

from emberkeep.base.processes.standard_streams import say

_BUFFERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom, io.BufferedRWPair)  # a text is before its bytes
# They write their ends when they are closed, without which readers refuse them.
_WITH_END = (gzip.GzipFile, bz2.BZ2File, lzma.LZMAFile, zipfile.ZipFile, tarfile.TarFile)


def flush_files() -> None:
    """Write the buffers of all open files but the standard streams. A failure is said, and changes nothing else."""
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    left_out = {id(each) for stream in streams for each in (stream, getattr(stream, "buffer", None))}
    found = gc.get_objects()
    for kind in _BUFFERS:
        for file in [each for each in found if issubclass(type(each), kind) and id(each) not in left_out]:
            _try(file, "flush")


def finish_files() -> None:
    """Write the buffers of all open files, and close compressed files and archives.

    Call this when nothing of the script uses them any more.
    """
    flush_files()
    for file in [each for each in gc.get_objects() if issubclass(type(each), _WITH_END)]:
        _try(file, "close")
    flush_files()


def _try(file: object, method: str) -> None:
    try:
        if not getattr(file, "closed", False):
            getattr(file, method)()
    except ValueError:
        return  # its buffer was detached, or a thread has just closed it
    except Exception as error:  # noqa: BLE001 - the file may be any object of the script's, and its disk may be full
        say(f"Exception ignored in: {file!r}\n{type(error).__name__}: {error}")
