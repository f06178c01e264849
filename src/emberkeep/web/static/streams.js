// The history of a job's streaming queries: reads it from the REST API, and continues when the page shows new batches.
// Everything that queries report becomes text, never markup. The query and the zoom are in the page's address.

import { serverTime } from "./ages.js";
import { bytes, count, moment, seconds } from "./formats.js";
import { markText, perRecord, readMarks, since } from "./marks.js";
import { note } from "./plot_zoom.js";
import { bodyOf } from "./problems.js";
import { reach } from "./reach.js";
import { backlogOf, backlogs, reported, rows, summary } from "./stream_series.js";
import { fill } from "./table_rows.js";

const MOST = 1000; // records that are kept and drawn
const TABLE_ROWS = 50;
const QUIET_MS = 30000; // after which the history is read although the page shows no new batch
const QUERY = "query"; // in the address

const section = document.getElementById("streams");
const select = document.getElementById("stream-query");
const newest = document.getElementById("stream-newest");
const problem = document.getElementById("stream-problem");
const table = document.getElementById("stream-table");
const sources = document.getElementById("stream-sources");
const place = document.getElementById("plots");
const tables = section?.querySelector("details");

let records = [];
let wanted = new URLSearchParams(location.search).get(QUERY) ?? ""; // id of the query that the address names
let batches = null; // what the page said of the queries when the history was read; null: read it again
let readAt = -Infinity;
let shown = ""; // id of the query whose records these are
let marks = null; // of the timeline; null: read them again
let plots = null;
let busy = false;
let again = false;

async function read(parameters) {
  const response = await reach(`${section.dataset.progress}?${new URLSearchParams(parameters)}`, { cache: "no-store" });
  const answer = await bodyOf(response);
  if (!response.ok) throw new Error(answer.detail);
  return answer;
}

function title(query) {
  return query.name || `unnamed, ${query["query-id"].slice(0, 8)}`;
}

function offer(queries) {
  const known = [...select.options].map((option) => `${option.value} ${option.textContent}`).join("\n");
  const offered = queries.map((query) => `${query["query-id"]} ${title(query)}`).sort();
  if (known === offered.join("\n")) return;
  const chosen = select.value || wanted || queries[0]["query-id"];
  select.replaceChildren(...offered.map((text) => new Option(text.slice(text.indexOf(" ") + 1), text.split(" ", 1)[0])));
  select.value = chosen;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
  select.parentElement.hidden = queries.length < 2;
}

// Another query is shown than the address names, if the history has none of that id.
function sayUnknown(queries) {
  const isUnknown = wanted !== "" && queries.every((query) => query["query-id"] !== wanted);
  problem.hidden = !isUnknown;
  if (!isUnknown) return;
  const [id, name] = [wanted.slice(0, 40), select.selectedOptions[0]?.textContent];
  problem.textContent = `The address names the query ${id}, of which the history has no records. The plots show the query “${name}” instead.`;
}

function numbers(record, marks) {
  const gap = record["watermark-gap"];
  return [
    ["Batch", String(record["batch-id"]), "key num"],
    ["Began", moment(record.triggered), "when"],
    ["Took", seconds(record.duration / 1000)],
    ["Rows", count(record.rows)],
    ["In / s", count(record["input-rows-per-second"])],
    ["Done / s", count(record["processed-rows-per-second"])],
    ["State rows", count(record["state-rows"])],
    ["State memory", bytes(record["state-bytes"])],
    ["State commit", seconds(record["state-commit-duration"] / 1000)],
    ["Watermark gap", gap === null ? "–" : seconds(gap / 1000)],
    ["Late rows", count(record["late-rows"])],
    ["Backlog", backlogs(record)],
    ["Events since", marks.map(markText).join("; ") || "–", "hint"],
  ];
}

function offsets(source) {
  const wait = source["backlog-seconds"];
  return [
    ["Source", source.description, "name"],
    ["Rows", count(source.rows)],
    ["Read up to", source["end-offset"] || "–", "offset"],
    ["Available", source["latest-offset"] || "–", "offset"],
    ["Backlog", backlogOf(source)],
    ["Takes", wait === null ? "–" : seconds(wait)],
    ["Reported", reported(source), "offset"],
  ];
}

function sayNewest() {
  if (records.length === 0) return;
  const text = summary(records.at(-1), serverTime());
  if (newest.textContent !== text) newest.textContent = text;
}

function fillTables() {
  if (!tables.open || records.length === 0) return;
  const listed = records.slice(-TABLE_ROWS);
  const events = perRecord(listed, marks ?? [], "triggered");
  fill(table, listed.map((record, index) => numbers(record, events[index])).reverse());
  fill(sources, records.at(-1).sources.map(offsets));
}

async function draw() {
  if (records.length === 0) return;
  sayNewest();
  fillTables();
  if (plots === null) {
    const { streamPlots } = await import("./stream_plots.js");
    const [legend, tools, spoken] = ["plot-legend", "plot-tools", "plot-spoken"].map((id) => document.getElementById(id));
    plots = streamPlots({ place, legend, tools, spoken });
  }
  const moments = rows(records);
  const shownMarks = since(marks, moments);
  const last = (shownMarks.at(-1)?.at ?? 0) / 1000;
  plots.show(records, last > moments.at(-1).at ? rows(records, last * 1000) : moments, shownMarks);
}

// What the page says of the queries: their newest batches.
function newestBatches() {
  return document.getElementById("queries")?.textContent ?? "";
}

// A batch job has no history, and a stream's grows only with its batches.
function isDue() {
  return newestBatches() !== batches || (records.length > 0 && performance.now() - readAt >= QUIET_MS);
}

async function update() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  [batches, readAt] = [newestBatches(), performance.now()];
  try {
    const chosen = select.value;
    const goesOn = chosen !== "" && chosen === shown;
    const after = goesOn ? (records.at(-1)?.recorded ?? 0) : 0;
    const answer = await read(chosen === "" ? { limit: 1 } : { query: chosen, after, limit: MOST });
    if (answer.queries.length === 0) return;
    section.hidden = false;
    offer(answer.queries);
    sayUnknown(answer.queries);
    if (chosen === "") {
      again = true;
      return;
    }
    if (!goesOn) plots?.clear();
    const isNew = marks === null;
    marks ??= readMarks(document.getElementById("timeline-data"));
    if (goesOn && answer.records.length === 0 && !isNew) return sayNewest();
    records = (goesOn ? [...records, ...answer.records] : answer.records).slice(-MOST);
    shown = chosen;
    await draw();
  } catch (error) {
    batches = null;
    problem.textContent = `The history cannot be read now: ${error.message}`;
    problem.hidden = section.hidden;
  } finally {
    busy = false;
    if (again) {
      again = false;
      update();
    }
  }
}

if (section !== null) {
  select.addEventListener("change", () => {
    wanted = select.value;
    note({ [QUERY]: wanted });
    update();
  });
  tables.addEventListener("toggle", fillTables);
  document.addEventListener("emberkeep:changed", (event) => {
    if (event.detail.has("timeline-data")) marks = null;
  });
  document.addEventListener("emberkeep:refreshed", () => {
    if (isDue() || (marks === null && records.length > 0)) update();
    else sayNewest();
  });
  update();
}
