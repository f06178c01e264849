"""The history of one task manager: samples of the intervals in which it has reported. Pure.

What is older than SAMPLES_KEPT intervals is thinned: EARLIER_STEPS intervals become one earlier sample. A sample takes
24 bytes, so a day, of which the last hour has a sample for each 10 s, takes 15 KiB, and that of 500 task managers less
than 8 MB.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Final

import msgspec

from emberkeep.base.compatible import Compatible

SAMPLES_KEPT: Final = 360  # an hour of intervals of 10 s
EARLIER_STEPS: Final = 30  # intervals that become one earlier sample
EARLIER_KEPT: Final = 277  # earlier samples: 23 hours, and the one that has only begun
SHORTEST_STEP_MS: Final = 10_000
NEARLY_FULL_MB: Final = 5 * 1024  # free on a disk; the alert EmberkeepDiskNearlyFull has the same bound

_SAMPLE: Final = struct.Struct("<qfIIHH")
_MOST_MB: Final = 2**32 - 1
_MOST_SLOTS: Final = 2**16 - 1


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a task manager has reported at one moment."""

    cpu_percent: float
    memory_used_mb: int
    disk_free_mb: int
    slots: int
    slots_taken: int


class Sample(Reading, frozen=True, kw_only=True):
    """One interval, which begins at ``time_ms``: the mean of the processors' load, and the newest of the rest.

    An earlier sample has the mean of the load, the newest number of slots, and of the rest what was worst: most memory
    and slots in use, least of the disk free.
    """

    time_ms: int


class KeptUsage(Compatible, frozen=True, kw_only=True):
    """A history as it is stored. ``samples``: one after the other, oldest first, each packed. ``earlier``: the same."""

    since_ms: int
    samples: bytes
    disk_low_since_ms: int = 0
    earlier: bytes = b""


def is_well_formed(samples: bytes) -> bool:
    """True if these are packed samples, each later than the one before."""
    if len(samples) % _SAMPLE.size:
        return False
    times = [time_ms for time_ms, *_ in _SAMPLE.iter_unpack(samples)]
    return all(before < after for before, after in pairwise(times))


def step_ms(heartbeat_interval: float) -> int:
    """Return the length of an interval: 10 s, or a multiple in which at least one heartbeat comes for sure."""
    heartbeats = round(2000 * heartbeat_interval)
    return max(SHORTEST_STEP_MS, -(-heartbeats // SHORTEST_STEP_MS) * SHORTEST_STEP_MS)


class UsageHistory:
    """The newest SAMPLES_KEPT intervals, and EARLIER_KEPT earlier samples. ``since_ms``: of the first reading, or 0.

    ``disk_low_since_ms``: since when less than NEARLY_FULL_MB of the disk are free; 0 while there is more.
    """

    def __init__(self, step_ms: int) -> None:
        self.since_ms = 0
        self.disk_low_since_ms = 0
        self._step_ms = step_ms
        self._begin()

    def _begin(self) -> None:
        self._ended = bytearray()  # packed samples, oldest first
        self._earlier = bytearray()
        self._open: Sample | None = None  # the interval that has not ended
        self._weight = 0  # milliseconds that the open interval's load stands for
        self._newest_ms = 0

    def note(self, reading: Reading, now_ms: int) -> None:
        """Add a reading. If the clock has been set back by more than an interval, the history begins anew."""
        if self.since_ms == 0 or now_ms < self._newest_ms - self._step_ms:
            self._begin()
            self.since_ms = now_ms
            self.disk_low_since_ms = 0
        # A reading's load is that of the time since the one before: a reading that follows at once counts little.
        weight = min(max(now_ms - self._newest_ms, 1), self._step_ms)
        begin_ms = now_ms - now_ms % self._step_ms
        load = reading.cpu_percent if 0 <= reading.cpu_percent <= 100 else 0.0
        current = self._open
        if current is None or begin_ms > current.time_ms:
            if current is not None:
                self._ended += _packed(current)
            self._thin(begin_ms)
            self._weight = weight
        else:  # also if the clock has been set back a little
            begin_ms, before = current.time_ms, self._weight
            self._weight += weight
            load = (current.cpu_percent * before + load * weight) / self._weight
        self._open = Sample(
            time_ms=begin_ms,
            cpu_percent=load,
            memory_used_mb=_within(reading.memory_used_mb, _MOST_MB),
            disk_free_mb=_within(reading.disk_free_mb, _MOST_MB),
            slots=_within(reading.slots, _MOST_SLOTS),
            slots_taken=_within(reading.slots_taken, _MOST_SLOTS),
        )
        self._newest_ms = max(now_ms, self._newest_ms)
        is_low = reading.disk_free_mb < NEARLY_FULL_MB
        self.disk_low_since_ms = (self.disk_low_since_ms or now_ms) if is_low else 0

    @property
    def newest_slots(self) -> int:
        """The number of slots in the newest sample; 0 if there is none."""
        return 0 if self._open is None else self._open.slots

    def samples(self, after_ms: int = 0) -> tuple[Sample, ...]:
        """Return the samples that begin after ``after_ms``, oldest first. The last one changes until its end."""
        ended = _unpacked(self._ended, after_ms)
        if self._open is not None and self._open.time_ms > after_ms:
            return (*ended, _rounded(self._open))
        return ended

    def earlier(self, after_ms: int = 0) -> tuple[Sample, ...]:
        """Return the earlier samples that begin after ``after_ms``, oldest first. The last one is of a part only."""
        return _unpacked(self._earlier, after_ms)

    def kept(self) -> KeptUsage:
        """Return the history for the next leader."""
        samples = bytes(self._ended) + (b"" if self._open is None else _packed(self._open))
        return KeptUsage(
            since_ms=self.since_ms,
            samples=samples,
            disk_low_since_ms=self.disk_low_since_ms,
            earlier=bytes(self._earlier),
        )

    def continue_from(self, before: KeptUsage) -> None:
        """Put what an earlier leader has kept in front. What it has of later times is left out."""
        own_earlier, own = self._earlier, self._ended
        known = [_first_ms(own_earlier), _first_ms(own), None if self._open is None else self._open.time_ms]
        first = min((time_ms for time_ms in known if time_ms is not None), default=None)
        ended, earlier = _until(before.samples, first), _until(before.earlier, first)
        if not ended and not earlier:
            return
        if self._open is None and ended:  # the next reading may come within the newest interval
            self._open = _sample(*_SAMPLE.unpack_from(ended, len(ended) - _SAMPLE.size))
            self._weight, self._newest_ms = self._step_ms, self._open.time_ms
            del ended[-_SAMPLE.size :]
        self._earlier, self._ended = earlier, ended
        self._thin(self._open.time_ms if self._open is not None else 0)
        self._earlier += own_earlier
        self._ended += own
        self.since_ms = before.since_ms
        if first is None or self.disk_low_since_ms:
            self.disk_low_since_ms = before.disk_low_since_ms or self.disk_low_since_ms

    def _thin(self, newest_ms: int) -> None:
        """Make earlier samples of those that are too old beside one that begins at ``newest_ms``."""
        oldest_ms = newest_ms - (SAMPLES_KEPT - 1) * self._step_ms
        while (found := _first_ms(self._ended)) is not None and found < oldest_ms:
            self._keep_earlier(_sample(*_SAMPLE.unpack_from(self._ended)))
            del self._ended[: _SAMPLE.size]
        length = EARLIER_STEPS * self._step_ms
        while (found := _first_ms(self._earlier)) is not None and found < oldest_ms - (EARLIER_KEPT - 1) * length:
            del self._earlier[: _SAMPLE.size]

    def _keep_earlier(self, sample: Sample) -> None:
        begin_ms = sample.time_ms - sample.time_ms % (EARLIER_STEPS * self._step_ms)
        kept = msgspec.structs.replace(sample, time_ms=begin_ms)
        if self._earlier:
            before = _sample(*_SAMPLE.unpack_from(self._earlier, len(self._earlier) - _SAMPLE.size))
            if before.time_ms >= begin_ms:
                kept = _both(before, sample, steps=max(1, (sample.time_ms - before.time_ms) // self._step_ms))
                del self._earlier[-_SAMPLE.size :]
        self._earlier += _packed(kept)


def _both(before: Sample, sample: Sample, steps: int) -> Sample:
    """Return an earlier sample with one more. ``steps``: intervals that it already stands for."""
    return Sample(
        time_ms=before.time_ms,
        cpu_percent=(before.cpu_percent * steps + sample.cpu_percent) / (steps + 1),
        memory_used_mb=max(before.memory_used_mb, sample.memory_used_mb),
        disk_free_mb=min(before.disk_free_mb, sample.disk_free_mb),
        slots=sample.slots,
        slots_taken=max(before.slots_taken, sample.slots_taken),
    )


def _first_ms(samples: bytes | bytearray) -> int | None:
    return int(_SAMPLE.unpack_from(samples)[0]) if samples else None


def _until(samples: bytes, end_ms: int | None) -> bytearray:
    """Return the packed samples that begin before ``end_ms``, if that is not None."""
    found = bytearray(samples)
    while found and end_ms is not None and _SAMPLE.unpack_from(found, len(found) - _SAMPLE.size)[0] >= end_ms:
        del found[-_SAMPLE.size :]
    return found


def _unpacked(samples: bytearray, after_ms: int) -> tuple[Sample, ...]:
    return tuple(_rounded(_sample(*values)) for values in _SAMPLE.iter_unpack(samples) if values[0] > after_ms)


def _packed(sample: Sample) -> bytes:
    return _SAMPLE.pack(
        sample.time_ms,
        sample.cpu_percent,
        sample.memory_used_mb,
        sample.disk_free_mb,
        sample.slots,
        sample.slots_taken,
    )


def _sample(time_ms: int, load: float, memory_used_mb: int, disk_free_mb: int, slots: int, taken: int) -> Sample:
    return Sample(
        time_ms=time_ms,
        cpu_percent=load,
        memory_used_mb=memory_used_mb,
        disk_free_mb=disk_free_mb,
        slots=slots,
        slots_taken=taken,
    )


def _rounded(sample: Sample) -> Sample:
    return msgspec.structs.replace(sample, cpu_percent=round(sample.cpu_percent, 1))


def _within(value: int, most: int) -> int:
    return min(max(value, 0), most)
