"""Times the work of a job: wall time, and the CPU time of all processes of its side (daemons, driver, executors)."""

import os
import time
from collections.abc import Callable

import psutil

_MARK = "BENCH_MARK"  # carried by every process that one side of a comparison has started


def repeat(work: Callable[[], int], repetitions: int) -> None:
    """Do it once to warm up, then ``repetitions`` times; print "SECONDS …" and "CPU …" for each."""
    for _ in range(repetitions + 1):
        cpu, start = _cpu_seconds(), time.perf_counter()
        result = work()
        seconds = time.perf_counter() - start
        print(f"SECONDS {seconds:.3f} {result}\nCPU {_cpu_seconds() - cpu:.3f}", flush=True)


def _cpu_seconds() -> float:
    mark, total = os.environ[_MARK], 0.0
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark:
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        except psutil.Error:
            continue  # another user's, or it has just ended
    return total
