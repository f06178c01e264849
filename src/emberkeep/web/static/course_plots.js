// The plots of what a job has done, and at what cost.

import { bytes, count, percent, seconds } from "./formats.js";
import { Plots } from "./plots.js";

const PLOTS = [
  {
    id: "tasks",
    title: "Tasks done",
    left: count,
    series: () => [{ label: "by all attempts", value: (sample) => sample.tasks }],
  },
  {
    id: "task-rate",
    title: "Tasks per second",
    left: count,
    series: () => [{ label: "done", value: (sample) => sample.rate }],
  },
  {
    id: "executors",
    title: "Executors",
    stepped: true,
    left: count,
    series: () => [{ label: "most at a time", value: (sample) => sample.executors }],
  },
  {
    id: "gc",
    title: "Garbage collection",
    left: percent,
    series: () => [{ label: "of task time", value: (sample) => sample.gc }],
  },
  {
    id: "shuffle",
    title: "Shuffles, bytes per second",
    onlyIfUsed: true,
    left: bytes,
    series: () => [
      { label: "read", value: (sample) => sample.shuffleRead },
      { label: "written", value: (sample) => sample.shuffleWritten },
    ],
  },
  {
    id: "spill",
    title: "Spilled, bytes per second",
    onlyIfUsed: true,
    left: bytes,
    series: () => [
      { label: "to disks", value: (sample) => sample.spilledDisk },
      { label: "before serialization", value: (sample) => sample.spilledMemory },
    ],
  },
];

// `elements`: see Plots.
export function coursePlots(elements) {
  const label = (sample) => seconds(sample.step / 1000);
  return new Plots({ ...elements, name: "course", address: "course", plots: PLOTS, noun: "samples", label });
}
