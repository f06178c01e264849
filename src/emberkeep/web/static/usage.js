// The history of a task manager, or of all on a node. The zoom is in the page's address.

import { bytes, moment, percent } from "./formats.js";
import { markText, perRecord, readMarks, since } from "./marks.js";
import { fill } from "./table_rows.js";
import { followUsage } from "./usage_reading.js";
import { diskFree, memoryUsed, summary, usageRows } from "./usage_series.js";

const TABLE_ROWS = 60;

const section = document.getElementById("usage");
const newest = document.getElementById("usage-newest");
const table = document.getElementById("usage-table");

let usage = null;
let plots = null;

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

async function draw(read) {
  usage = read;
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

const addresses = () => document.getElementById("usage-sources").dataset.sources.split(" ").filter(Boolean);
followUsage(addresses, { section, problem: document.getElementById("usage-problem") }, draw);
