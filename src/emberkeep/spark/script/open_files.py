"""Write out the files that the script has left open. Python does so when it frees a script's variables at its end.

The driver ends its process without freeing them: threads may still use them. A thread that hangs while it writes to a
file holds the file's lock, so each wait is bounded.
"""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import lzma
import sys
import tarfile
import threading
import zipfile

from emberkeep.base.processes.standard_streams import HUNG, say

_BUFFERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom, io.BufferedRWPair)  # a text is before its bytes
# They write their ends when they are closed, without which readers refuse them. An archive may be in a compressed one.
_ARCHIVES = (zipfile.ZipFile, tarfile.TarFile)
_COMPRESSED = (gzip.GzipFile, bz2.BZ2File, lzma.LZMAFile)
_SECONDS = 30.0  # time limit of all files, and again of those after one that hangs
_MOST_HANGING = 3

_Step = tuple[object, str]  # a file, and the method to call


def flush_files() -> None:
    """Write the buffers of all open files but the standard streams. A failure is said, and changes nothing else."""
    _carry_out(_steps(_found(_BUFFERS), _BUFFERS, "flush"))


def finish_files() -> None:
    """Write the buffers of all open files, and close compressed files and archives.

    Call this when nothing of the script uses them any more.
    """
    found = _found(_BUFFERS + _ARCHIVES + _COMPRESSED)
    flushes = _steps(found, _BUFFERS, "flush")
    closes = [_steps(found, kinds, "close") for kinds in (_ARCHIVES, _COMPRESSED)]
    _carry_out(flushes + [step for each in closes if each for step in each + flushes])


def _found(kinds: tuple[type, ...]) -> list[object]:
    """Return the objects of these kinds in one pass: a script may have millions of others."""
    objects = gc.get_objects()
    types = {id(each): each for each in map(type, objects)}
    wanted = {identity for identity, each in types.items() if issubclass(each, kinds)}
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__, *HUNG)
    left_out = {id(each) for stream in streams for each in (stream, getattr(stream, "buffer", None))}
    return [each for each in objects if id(type(each)) in wanted and id(each) not in left_out]


def _steps(found: list[object], kinds: tuple[type, ...], method: str) -> list[_Step]:
    return [(file, method) for kind in kinds for file in found if issubclass(type(file), kind)]


def _carry_out(steps: list[_Step]) -> None:
    """Carry out the steps in turn. Leave out a file that hangs."""
    for _ in range(_MOST_HANGING):
        begun: list[_Step] = []
        is_late = threading.Event()
        # Daemon: this process can end although the thread hangs.
        worker = threading.Thread(
            target=_try_all, args=(steps, begun, is_late), name="emberkeep-open-files", daemon=True
        )
        try:
            worker.start()
        except RuntimeError:  # this process may have no further thread
            _try_all(steps, begun, is_late)
            return
        worker.join(_SECONDS)
        if not worker.is_alive():
            return
        is_late.set()
        count = max(1, len(begun))
        file = steps[count - 1][0]
        say(f"emberkeep: {_text(file)} was not written within {_SECONDS:.0f} s and may be incomplete")
        steps = [step for step in steps[count:] if step[0] is not file]
    if steps:
        say("emberkeep: other files that the script has left open may be incomplete as well")


def _try_all(steps: list[_Step], begun: list[_Step], is_late: threading.Event) -> None:
    for step in steps:
        if is_late.is_set():
            return
        begun.append(step)
        _try(*step)


def _try(file: object, method: str) -> None:
    try:
        if not getattr(file, "closed", False):
            getattr(file, method)()
    except ValueError:
        return  # its buffer was detached, or a thread has just closed it
    except Exception as error:  # noqa: BLE001 - the file may be any object of the script's, and its disk may be full
        say(f"Exception ignored in: {_text(file)}\n{type(error).__name__}: {error}")


def _text(file: object) -> str:
    try:
        return repr(file)
    except Exception:  # noqa: BLE001 - see above
        return object.__repr__(file)
