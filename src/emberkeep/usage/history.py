"""The history of one task manager: a ring of samples, one for each interval in which it has reported. Pure.

A sample takes 24 bytes, so an hour at 10 s takes 8.4 KiB, and that of 500 task managers less than 5 MB.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Final

import msgspec

from emberkeep.base.compatible import Compatible

SAMPLES_KEPT: Final = 360
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
    """One interval, which begins at ``time_ms``: the mean of the processors' load, and the newest of the rest."""

    time_ms: int


class KeptUsage(Compatible, frozen=True, kw_only=True):
    """A history as it is stored. ``samples``: one after the other, oldest first, each packed as in a ring."""

    since_ms: int
    samples: bytes
    disk_low_since_ms: int = 0


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
    """The newest SAMPLES_KEPT intervals with readings. ``since_ms``: when the first reading came; 0 before.

    ``disk_low_since_ms``: since when less than NEARLY_FULL_MB of the disk are free; 0 while there is more.
    """

    def __init__(self, step_ms: int) -> None:
        self.since_ms = 0
        self.disk_low_since_ms = 0
        self._step_ms = step_ms
        self._begin()

    def _begin(self) -> None:
        self._ring = bytearray()
        self._oldest = 0  # index in the ring
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
                self._keep(current)
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

    def samples(self, after_ms: int = 0) -> tuple[Sample, ...]:
        """Return the samples that begin after ``after_ms``, oldest first. The last one changes until its end."""
        size = _SAMPLE.size
        kept = len(self._ring) // size
        found = (_SAMPLE.unpack_from(self._ring, (self._oldest + index) % kept * size) for index in range(kept))
        ended = [_sample(*values) for values in found if values[0] > after_ms]
        if self._open is not None and self._open.time_ms > after_ms:
            ended.append(_rounded(self._open))
        return tuple(ended)

    def kept(self) -> KeptUsage:
        """Return the history for the next leader."""
        samples = self._in_order() + (b"" if self._open is None else _packed(self._open))
        return KeptUsage(since_ms=self.since_ms, samples=samples, disk_low_since_ms=self.disk_low_since_ms)

    def continue_from(self, earlier: KeptUsage) -> None:
        """Put what an earlier leader has kept in front. What it has of later times is left out."""
        size, own = _SAMPLE.size, self._in_order()
        first = _SAMPLE.unpack_from(own)[0] if own else self._open.time_ms if self._open is not None else None
        end = len(earlier.samples) // size
        while first is not None and end > 0 and _SAMPLE.unpack_from(earlier.samples, (end - 1) * size)[0] >= first:
            end -= 1
        if end == 0:
            return
        before = earlier.samples[: end * size]
        if first is None:  # the next reading may come within the newest interval
            self._open = _sample(*_SAMPLE.unpack_from(before, len(before) - size))
            self._weight, self._newest_ms = self._step_ms, self._open.time_ms
            before = before[:-size]
        self._ring, self._oldest = bytearray((before + own)[-(SAMPLES_KEPT - 1) * size :]), 0
        self.since_ms = earlier.since_ms
        if first is None or self.disk_low_since_ms:
            self.disk_low_since_ms = earlier.disk_low_since_ms or self.disk_low_since_ms

    def _in_order(self) -> bytes:
        at = self._oldest * _SAMPLE.size
        return bytes(self._ring[at:] + self._ring[:at])

    def _keep(self, sample: Sample) -> None:
        packed = _packed(sample)
        if len(self._ring) < (SAMPLES_KEPT - 1) * _SAMPLE.size:  # the open interval is one more
            self._ring += packed
            return
        at = self._oldest * _SAMPLE.size
        self._ring[at : at + _SAMPLE.size] = packed
        self._oldest = (self._oldest + 1) % (SAMPLES_KEPT - 1)


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
        cpu_percent=round(load, 1),
        memory_used_mb=memory_used_mb,
        disk_free_mb=disk_free_mb,
        slots=slots,
        slots_taken=taken,
    )


def _rounded(sample: Sample) -> Sample:
    return msgspec.structs.replace(sample, cpu_percent=round(sample.cpu_percent, 1))


def _within(value: int, most: int) -> int:
    return min(max(value, 0), most)
