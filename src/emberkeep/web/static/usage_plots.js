// The plots of the machine of a task manager, and of slots.

import { bytes, count, percent, seconds } from "./formats.js";
import { Plots } from "./plots.js";
import { diskFree, memoryUsed } from "./usage_series.js";

const slots = {
  id: "slots",
  title: "Slots",
  stepped: true,
  left: count,
  series: () => [
    { label: "taken", value: (sample) => sample["slots-taken"] },
    { label: "in total", value: (sample) => sample.slots },
  ],
};

// The plot of slots alone, those of a cluster for instance. `elements`: see Plots.
export function slotsPlot(elements) {
  return plotsOf(elements, "slots", [slots]);
}

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
    slots,
  ];
  return plotsOf(elements, "usage", plots);
}

function plotsOf(elements, name, plots) {
  const label = (sample) => seconds(sample.step / 1000);
  return new Plots({ ...elements, name, plots, noun: "samples", label });
}
