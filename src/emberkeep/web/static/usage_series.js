// Turns the histories of task managers into rows for plots, and the newest sample into a sentence. Nothing here touches
// the page.

import { bytes, moment, percent } from "./formats.js";

const MIB = 1024 * 1024;
const MOST = 360; // samples that are kept and drawn as they are
const MOST_EARLIER = 277; // those that each stand for many older ones

// The history with what the REST API has answered since. An answer begins with the newest sample that was known: it may
// have changed.
export function continued(known, answer) {
  const begin = answer.samples[0]?.time ?? Infinity;
  const samples = [...(known?.samples ?? []).filter((sample) => sample.time < begin), ...answer.samples];
  const earlier = known?.earlier ?? answer.earlier;
  return thinned({ ...answer, samples, earlier }, samples.at(-1)?.time ?? 0);
}

// True if samples may be missing between those that are known and those of an answer.
export function hasGap(known, answer) {
  return known.since !== answer.since || answer.earlier.length > 0;
}

// The history with earlier samples in place of those that are too old beside one at `newest`, as the JobManager makes
// them.
function thinned(history, newest) {
  const oldest = newest - (MOST - 1) * history.interval;
  const length = history["earlier-interval"];
  const earlier = [...history.earlier];
  for (const sample of history.samples) {
    if (sample.time >= oldest) break;
    const time = sample.time - (sample.time % length);
    const before = earlier.at(-1);
    if (before !== undefined && before.time >= time) {
      earlier[earlier.length - 1] = worst(before, sample, Math.max(1, Math.floor((sample.time - before.time) / history.interval)));
    } else earlier.push({ ...sample, time });
  }
  return {
    ...history,
    earlier: earlier.filter((sample) => sample.time >= oldest - (MOST_EARLIER - 1) * length),
    samples: history.samples.filter((sample) => sample.time >= oldest),
  };
}

// `steps`: intervals that the earlier sample already stands for.
function worst(earlier, sample, steps) {
  return {
    time: earlier.time,
    "cpu-percent": (earlier["cpu-percent"] * steps + sample["cpu-percent"]) / (steps + 1),
    "memory-used-mb": Math.max(earlier["memory-used-mb"], sample["memory-used-mb"]),
    "disk-free-mb": Math.min(earlier["disk-free-mb"], sample["disk-free-mb"]),
    slots: sample.slots,
    "slots-taken": Math.max(earlier["slots-taken"], sample["slots-taken"]),
  };
}

// One history of the task managers of one machine. Slots are added up. Each measures the same processors and memory.
// Where they have different disks, the fullest one counts. `samples`: all, oldest first; each has the length of its
// interval as `step`.
export function together(histories) {
  const known = histories.filter((history) => history.since !== null);
  const [first] = known;
  if (first === undefined) return null;
  const newest = Math.max(...known.map((history) => history.samples.at(-1)?.time ?? 0));
  const even = known.map((history) => thinned(history, newest));
  const most = (name) => Math.max(...known.map((history) => history[name]));
  return {
    since: Math.min(...known.map((history) => history.since)),
    memory: most("memory-total-mb") * MIB,
    disk: most("disk-total-mb") * MIB,
    samples: [
      ...summed(even.flatMap((history) => history.earlier), first["earlier-interval"]),
      ...summed(even.flatMap((history) => history.samples), first.interval),
    ],
  };
}

function summed(samples, step) {
  const byTime = new Map();
  for (const sample of samples) {
    const other = byTime.get(sample.time);
    byTime.set(sample.time, other === undefined ? { ...sample, step } : { ...added(other, sample), step });
  }
  return [...byTime.values()].sort((one, other) => one.time - other.time);
}

function added(one, other) {
  return {
    time: one.time,
    "cpu-percent": Math.max(one["cpu-percent"], other["cpu-percent"]),
    "memory-used-mb": Math.max(one["memory-used-mb"], other["memory-used-mb"]),
    "disk-free-mb": Math.min(one["disk-free-mb"], other["disk-free-mb"]),
    slots: one.slots + other.slots,
    "slots-taken": one["slots-taken"] + other["slots-taken"],
  };
}

// The moments of the samples in seconds. A moment without values follows where an interval is missing, so that no line
// joins the samples around it, and at `until`, in milliseconds, if that is later.
export function usageRows(samples, until = 0) {
  const found = [];
  for (const [index, sample] of samples.entries()) {
    const before = samples[index - 1];
    if (before && sample.time - before.time > before.step) found.push({ at: (before.time + before.step) / 1000, record: null });
    found.push({ at: sample.time / 1000, record: sample });
  }
  if (found.length > 0 && until / 1000 > found.at(-1).at) found.push({ at: until / 1000, record: null });
  return found;
}

export function memoryUsed(sample) {
  return sample["memory-used-mb"] * MIB;
}

export function diskFree(sample) {
  return sample["disk-free-mb"] * MIB;
}

// The newest sample of the cluster's slots in one sentence, and the most of them that were taken.
export function slotSummary(samples, since) {
  const newest = samples.at(-1);
  const most = samples.reduce((found, sample) => (sample["slots-taken"] >= found["slots-taken"] ? sample : found));
  return [
    `${newest["slots-taken"]} of ${newest.slots} slots taken`,
    `at most ${most["slots-taken"]} of ${most.slots}, last at ${moment(most.time)}`,
    `known since ${moment(since)}`,
  ].join(" · ");
}

function ofAll(value, all) {
  return all > 0 ? `${bytes(value)} of ${bytes(all)}` : bytes(value);
}

// The newest sample in one sentence, and since when the leader knows the history.
export function summary(usage) {
  const newest = usage.samples.at(-1);
  return [
    `${percent(newest["cpu-percent"])} CPU`,
    `${ofAll(memoryUsed(newest), usage.memory)} memory in use`,
    `${ofAll(diskFree(newest), usage.disk)} disk free`,
    `${newest["slots-taken"]} of ${newest.slots} slots taken`,
    `known since ${moment(usage.since)}`,
  ].join(" · ");
}
