// The history of the cluster's slots. The zoom is in the page's address.

import { count, moment } from "./formats.js";
import { fill } from "./table_rows.js";
import { followUsage } from "./usage_reading.js";
import { slotSummary, usageRows } from "./usage_series.js";

const TABLE_ROWS = 60;

const section = document.getElementById("slots");
const newest = document.getElementById("slots-newest");
const table = document.getElementById("slots-table");

let plots = null;

function numbers(sample) {
  const { slots, "slots-taken": taken } = sample;
  return [["From", moment(sample.time), "when"], ["Taken", count(taken)], ["Free", count(slots - taken)], ["In total", count(slots)]];
}

async function makePlots() {
  const { slotsPlot } = await import("./usage_plots.js");
  const ids = ["slots-plots", "slots-legend", "slots-tools", "slots-spoken"];
  const [place, legend, tools, spoken] = ids.map((id) => document.getElementById(id));
  return slotsPlot({ place, legend, tools, spoken });
}

async function draw({ samples, since }) {
  section.hidden = false;
  newest.textContent = slotSummary(samples, since);
  fill(table, samples.slice(-TABLE_ROWS).map(numbers).reverse());
  plots ??= await makePlots();
  plots.show(samples, usageRows(samples), []);
}

const addresses = () => [section.dataset.sources];
followUsage(addresses, { section, problem: document.getElementById("slots-problem") }, draw);
