// The history of a task manager, or of all on a node: reads it from the REST API, as often as there is a new sample.
// The zoom is in the page's address.

import { bytes, moment, percent } from "./formats.js";
import { markText, perRecord, readMarks, since } from "./marks.js";
import { fill } from "./table_rows.js";
import { readHistories } from "./usage_reading.js";
import { diskFree, memoryUsed, summary, together, usageRows } from "./usage_series.js";

const TABLE_ROWS = 60;

const section = document.getElementById("usage");
const newest = document.getElementById("usage-newest");
const problem = document.getElementById("usage-problem");
const table = document.getElementById("usage-table");

let usage = null;
let plots = null;
let readAt = -Infinity;
let busy = false;

function numbers(sample, marks) {
  return [
    ["From", moment(sample.time), "when"],
    ["CPU", percent(sample["cpu-percent"])],
    ["Memory in use", bytes(memoryUsed(sample))],
    ["Disk free", bytes(diskFree(sample))],
    ["Slots taken", `${sample["slots-taken"]} of ${sample.slots}`],
    ["Events since", marks.map(markText).join("; ") || "–", "hint"],
  ];
}

async function draw() {
  if (usage === null || usage.samples.length === 0) return;
  section.hidden = false;
  newest.textContent = summary(usage);
  const marks = since(readMarks(document.getElementById("node-events")), usageRows(usage.samples));
  const listed = usage.samples.slice(-TABLE_ROWS);
  const events = perRecord(listed, marks, "time");
  fill(table, listed.map((sample, index) => numbers(sample, events[index])).reverse());
  if (plots === null) {
    const { usagePlots } = await import("./usage_plots.js");
    const ids = ["usage-plots", "usage-legend", "usage-tools", "usage-spoken"];
    const [place, legend, tools, spoken] = ids.map((id) => document.getElementById(id));
    plots = usagePlots({ place, legend, tools, spoken }, () => usage);
  }
  plots.show(usage.samples, usageRows(usage.samples, marks.at(-1)?.at), marks);
}

async function update() {
  if (busy || performance.now() - readAt < (usage?.samples.at(-1)?.step ?? 0)) return; // there is no new sample yet
  busy = true;
  readAt = performance.now();
  try {
    const addresses = document.getElementById("usage-sources").dataset.sources.split(" ").filter(Boolean);
    usage = together(await readHistories(addresses)) ?? usage;
    problem.hidden = true;
    await draw();
  } catch (error) {
    problem.textContent = `The history cannot be read now: ${error.message}`;
    problem.hidden = section.hidden;
  } finally {
    busy = false;
  }
}

document.addEventListener("emberkeep:refreshed", update);
update();
