// The plots of a job's tasks and executors.

import { count, seconds } from "./formats.js";
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
];

// `elements`: see Plots.
export function coursePlots(elements) {
  const label = (sample) => seconds(sample.step / 1000);
  return new Plots({ ...elements, name: "course", address: "course", plots: PLOTS, noun: "samples", label });
}
