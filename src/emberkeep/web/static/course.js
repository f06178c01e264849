// What a job has done over its whole time. The page has the samples: live.js replaces them when there is a new one.
// The zoom is in the page's address.

import { courseRows, samples, summary } from "./course_series.js";
import { bytes, count, moment, percent } from "./formats.js";
import { markText, perRecord, readMarks, since } from "./marks.js";
import { fill } from "./table_rows.js";

const TABLE_ROWS = 60;

const section = document.getElementById("course");
const newest = document.getElementById("course-newest");
const table = document.getElementById("course-table");
const details = section.querySelector("details");

let plots = null;
let found = [];
let marks = [];

function numbers(sample, events) {
  return [
    ["From", moment(sample.time), "when"],
    ["Tasks done", count(sample.tasks)],
    ["Tasks / s", count(sample.rate)],
    ["Executors", count(sample.executors)],
    ["GC", percent(sample.gc)],
    ["Shuffle read / s", bytes(sample.shuffleRead)],
    ["Written / s", bytes(sample.shuffleWritten)],
    ["Spilled / s", bytes(sample.spilledDisk)],
    ["Events since", events.map(markText).join("; ") || "–", "hint"],
  ];
}

function fillTable() {
  if (!details.open) return;
  const listed = found.slice(-TABLE_ROWS);
  const events = perRecord(listed, marks, "time");
  fill(table, listed.map((sample, index) => numbers(sample, events[index])).reverse());
}

async function draw() {
  found = samples(document.getElementById("course-data").dataset);
  section.hidden = found.length < 2;
  if (section.hidden) return;
  newest.textContent = summary(found);
  marks = since(readMarks(document.getElementById("timeline-data")), courseRows(found));
  fillTable();
  if (plots === null) {
    const { coursePlots } = await import("./course_plots.js");
    const ids = ["course-plots", "course-legend", "course-tools", "course-spoken"];
    const [place, legend, tools, spoken] = ids.map((id) => document.getElementById(id));
    plots ??= coursePlots({ place, legend, tools, spoken });
  }
  plots.show(found, courseRows(found, marks.at(-1)?.at), marks);
}

details.addEventListener("toggle", fillTable);
document.addEventListener("emberkeep:changed", (event) => {
  if (event.detail.has("course-data")) draw();
});
draw();
