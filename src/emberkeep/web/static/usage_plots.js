// The plots of the machine of a task manager.

import { bytes, count, percent, seconds } from "./formats.js";
import { Plots } from "./plots.js";
import { diskFree, memoryUsed } from "./usage_series.js";

// `elements`: see Plots. `usage` returns what is shown now: its totals are the tops of the axes.
export function usagePlots(elements, usage) {
  const plots = [
    {
      id: "cpu",
      title: "CPU",
      left: percent,
      top: () => 100,
      series: () => [{ label: "in use", value: (sample) => sample["cpu-percent"] }],
    },
    {
      id: "memory",
      title: "Memory",
      left: bytes,
      top: () => usage().memory,
      series: () => [{ label: "in use", value: memoryUsed }],
    },
    {
      id: "disk",
      title: "Disk with the working directory",
      left: bytes,
      top: () => usage().disk,
      series: () => [{ label: "free", value: diskFree }],
    },
    {
      id: "slots",
      title: "Slots",
      stepped: true,
      left: count,
      series: () => [
        { label: "taken", value: (sample) => sample["slots-taken"] },
        { label: "in total", value: (sample) => sample.slots },
      ],
    },
  ];
  const label = (sample) => seconds(sample.step / 1000);
  return new Plots({ ...elements, name: "usage", plots, noun: "samples", label });
}
