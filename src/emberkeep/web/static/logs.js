// Lists logs. Names come from other processes, so they become text and encoded links, never markup.
//
// Listing them asks every task manager, so a list is made again only when there are other attempts, executors or drivers
// than before, or if it could not be made.

import { moment } from "./formats.js";
import { bodyOf } from "./problems.js";
import { reach } from "./reach.js";

const SIZES = ["bytes", "KiB", "MiB", "GiB"];

function size(bytes) {
  let step = 0;
  while (bytes >= 1024 && step < SIZES.length - 1) {
    bytes /= 1024;
    step += 1;
  }
  return `${step === 0 ? bytes : bytes.toFixed(1)} ${SIZES[step]}`;
}

function paragraph(text) {
  const element = document.createElement("p");
  element.className = "empty";
  element.textContent = text;
  return element;
}

function cell(row, label, content, kind = "") {
  const element = row.insertCell();
  element.dataset.label = label;
  element.className = kind;
  element.append(content);
}

// Logs of a process show their name. Logs of jobs have long names, so they show which process wrote them.
function title(log, page) {
  if (!log["job-id"]) return log.name;
  const [process, stream] = log.kind.split("-");
  const writer = log["executor-id"] ? `${process} ${log["executor-id"]} ${stream}` : `${process} ${stream}`;
  const job = page.startsWith("/jobs/") ? "" : `, job ${log["job-id"].slice(0, 8)}`;
  return `${writer}, attempt ${log.attempt}${job}`;
}

function table(logs, page) {
  const element = document.createElement("table");
  element.className = "stack";
  const head = element.createTHead().insertRow();
  for (const [text, kind] of [["Log", ""], ["Task manager", ""], ["Size", "num"], ["Last change", ""]]) {
    const heading = document.createElement("th");
    heading.textContent = text;
    heading.className = kind;
    head.append(heading);
  }
  const body = element.createTBody();
  for (const log of logs) {
    const row = body.insertRow();
    const link = document.createElement("a");
    const name = page.startsWith("/jobs/") ? log.id : log.name;
    link.href = `${page}/${encodeURIComponent(name)}`;
    link.textContent = title(log, page);
    link.title = log.name;
    cell(row, "Log", link);
    const place = log.problem ? ` (cannot be read now: ${log.problem})` : log.kept ? " (read from the storage)" : "";
    cell(row, "Task manager", `${log["taskmanager-id"] || "–"}${place}`);
    cell(row, "Size", log.problem ? "–" : size(log.size), "num");
    cell(row, "Last change", log.problem ? "–" : moment(log.mtime), "when");
  }
  return element;
}

const listed = new Map(); // which processes there were when a list was made; null if it could not be made

function processes() {
  return [...document.querySelectorAll("#attempts .key, #executors .key, #drivers tbody tr")].map((one) => one.textContent).join();
}

async function fill(place) {
  listed.set(place, processes());
  try {
    const response = await reach(place.dataset.logs, { cache: "no-store" });
    const answer = await bodyOf(response);
    if (!response.ok) throw new Error(answer.detail);
    const parts = [answer.logs.length > 0 ? table(answer.logs, place.dataset.page) : paragraph("No logs.")];
    if (answer.unreachable?.length > 0) {
      parts.push(paragraph(`Not reachable, so their logs are missing: ${answer.unreachable.join(", ")}`));
    }
    if (answer.problem) parts.push(paragraph(`${answer.problem[0].toUpperCase()}${answer.problem.slice(1)}`));
    place.replaceChildren(...parts);
  } catch (error) {
    listed.set(place, null);
    place.replaceChildren(paragraph(`The logs cannot be listed: ${error.message}`));
  }
}

const places = document.querySelectorAll("[data-logs]");
for (const place of places) fill(place);
document.addEventListener("emberkeep:refreshed", () => {
  for (const place of places) {
    const isUsed = place.contains(document.activeElement);
    if (listed.get(place) !== processes() && !isUsed) fill(place);
  }
});
