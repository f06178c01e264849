// The history of the cluster's slots: reads it from the REST API, as often as there is a new sample. The zoom is in the
// page's address.

import { count, moment, seconds } from "./formats.js";
import { fill } from "./table_rows.js";
import { readHistories } from "./usage_reading.js";
import { slotSummary, together, usageRows } from "./usage_series.js";

const TABLE_ROWS = 60;

const section = document.getElementById("slots");
const newest = document.getElementById("slots-newest");
const problem = document.getElementById("slots-problem");
const table = document.getElementById("slots-table");

let plots = null;
let step = 0;
let readAt = -Infinity;
let busy = false;

function numbers(sample) {
  const { slots, "slots-taken": taken } = sample;
  return [["From", moment(sample.time), "when"], ["Taken", count(taken)], ["Free", count(slots - taken)], ["In total", count(slots)]];
}

async function makePlots() {
  const { Plots } = await import("./plots.js");
  const ids = ["slots-plots", "slots-legend", "slots-tools", "slots-spoken"];
  const [place, legend, tools, spoken] = ids.map((id) => document.getElementById(id));
  const plot = {
    id: "slots",
    title: "Slots",
    stepped: true,
    left: count,
    series: () => [
      { label: "taken", value: (sample) => sample["slots-taken"] },
      { label: "in total", value: (sample) => sample.slots },
    ],
  };
  const label = (sample) => seconds(sample.step / 1000);
  return new Plots({ place, legend, tools, spoken, name: "slots", plots: [plot], noun: "samples", label });
}

async function draw({ samples, since }) {
  if (samples.length === 0) return;
  section.hidden = false;
  newest.textContent = slotSummary(samples, since);
  fill(table, samples.slice(-TABLE_ROWS).map(numbers).reverse());
  plots ??= await makePlots();
  plots.show(samples, usageRows(samples), []);
}

async function update() {
  if (busy || performance.now() - readAt < step) return; // there is no new sample yet
  busy = true;
  readAt = performance.now();
  try {
    const usage = together(await readHistories([section.dataset.sources]));
    if (usage !== null) {
      step = usage.samples.at(-1)?.step ?? 0;
      await draw(usage);
    }
    problem.hidden = true;
  } catch (error) {
    problem.textContent = `The history cannot be read now: ${error.message}`;
    problem.hidden = section.hidden;
  } finally {
    busy = false;
  }
}

document.addEventListener("emberkeep:refreshed", update);
update();
