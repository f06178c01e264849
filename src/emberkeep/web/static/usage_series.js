// Turns the histories of task managers into rows for plots, and the newest sample into a sentence. Nothing here touches
// the page.

import { bytes, count, moment } from "./formats.js";

const MIB = 1024 * 1024;
const MOST = 360; // samples that are kept and drawn

// The history with what the REST API has answered since. An answer begins with the newest sample that was known: it may
// have changed.
export function continued(known, answer) {
  const begin = answer.samples[0]?.time ?? Infinity;
  const samples = [...(known?.samples ?? []).filter((sample) => sample.time < begin), ...answer.samples];
  const oldest = (samples.at(-1)?.time ?? 0) - (MOST - 1) * answer.interval;
  return { ...answer, samples: samples.filter((sample) => sample.time >= oldest) };
}

// One history of the task managers of one machine. Slots are added up. Each measures the same processors and memory.
// Where they have different disks, the fullest one counts.
export function together(histories) {
  const known = histories.filter((history) => history.since !== null);
  const [first] = known;
  if (first === undefined) return null;
  const byTime = new Map();
  for (const sample of known.flatMap((history) => history.samples)) {
    const other = byTime.get(sample.time);
    byTime.set(sample.time, other === undefined ? sample : added(other, sample));
  }
  const samples = [...byTime.values()].sort((one, other) => one.time - other.time);
  const most = (name) => Math.max(...known.map((history) => history[name]));
  return {
    since: Math.min(...known.map((history) => history.since)),
    interval: first.interval,
    memory: most("memory-total-mb") * MIB,
    disk: most("disk-total-mb") * MIB,
    samples,
  };
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
export function usageRows(samples, interval, until = 0) {
  const found = [];
  for (const [index, sample] of samples.entries()) {
    const before = samples[index - 1];
    if (before && sample.time - before.time > interval) found.push({ at: (before.time + interval) / 1000, record: null });
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

export function percent(value) {
  return value === null || value === undefined ? "–" : `${count(value)} %`;
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
