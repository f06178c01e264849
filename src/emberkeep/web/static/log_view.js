// Shows the records of a log, or of all logs of an attempt by time: the newest first, older ones on demand, new ones as
// they are written. Logs may be of any size: the page holds a bounded number of records, and each request examines a
// bounded part of a log.

import { addressOf, allOf, attemptsOf, attemptsToOffer, choiceOf, marked, nearest, plain, processesOf, selection, streamOf, surplus, writerOf } from "./log_choice.js";
import { answered, lost } from "./connection.js";
import { elsewhere, followLeader, heard } from "./follow.js";
import { setName } from "./page_title.js";
import { bodyOf } from "./problems.js";
import { reach } from "./reach.js";
import { bytes, moment } from "./formats.js";

const MOST_RECORDS = 3000; // on the page
const FIRST_RECORDS = 200; // a search goes back until it has found so many
const WAIT_SECONDS = 20;
const PAUSE_MS = 2000;
const TYPING_MS = 400;
const PATIENCE_MS = (WAIT_SECONDS + 10) * 1000; // a connection that is cut off says nothing
const NEAR_PIXELS = 150;
const ALL = "all"; // instead of one process
const ENDED = ["FINISHED", "CANCELED", "FAILED"]; // states of a job that has no later attempt

const view = document.getElementById("log");
const state = document.getElementById("log-state");
const form = document.getElementById("log-search");
const older = document.getElementById("log-older");
const newest = document.getElementById("log-newest");
const download = document.getElementById("log-download");
const fields = form.elements;
const { list, page, merged } = view.dataset; // the last is the resource with all logs of a job

let choice = choiceOf(location.search);
let source = view.dataset.source ?? ""; // the log that is shown; "" for all
let logs = [];
let parts = []; // of what is shown, in its order: {start, end, isFirst, count, element}
let size = 0;
let complete = false;
let atEnd = true; // the last part ends where the logs end
let stopped = new AbortController(); // ends the requests of what was shown before
let isBusy = false; // with older records
let hasFailed = false; // the last request

let wake = () => {}; // ends the pause of what follows the log

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function ask(url, stop) {
  const patience = AbortSignal.timeout(PATIENCE_MS);
  const response = await reach(url, { cache: "no-store", signal: AbortSignal.any([patience, stop].filter(Boolean)) });
  heard(response);
  answered();
  const answer = await bodyOf(response);
  if (!response.ok) throw Object.assign(new Error(answer.detail), { status: response.status });
  return answer;
}

// Returns a part, the same for one log and for all: its records, and where it starts and ends.
async function part(parameters) {
  const query = new URLSearchParams({ ...(source === "" ? allOf(choice) : {}), ...selection(choice), ...parameters });
  const answer = await ask(`${source === "" ? merged : `${source}/records`}?${query}`, stopped.signal);
  if (source === "" && choice.attempt === 0) choice = { ...choice, attempt: answer.attempt }; // the cursors belong to it
  if (answer.records.some((record) => record.log !== "" && logOf(record) === undefined)) await readList(); // a new executor
  if (source !== "") return { ...answer, isFirst: answer.start === 0, isLast: true, missing: [], problem: "" };
  return { ...answer, start: answer.previous, end: answer.next, size: 0, isFirst: answer["at-start"], isLast: answer["at-end"], missing: answer.unreachable };
}

const before = (start) => part({ before: start });
const last = () => before(source === "" ? "" : Number.MAX_SAFE_INTEGER);
// After a failure the answer is wanted at once: it says that the log can be read again.
const after = (end) => part(source === "" ? { after: end } : { offset: end, wait: hasFailed ? 0 : WAIT_SECONDS });

const logOf = (record) => logs.find((each) => each.id === record.log);

function recordElement(record) {
  const element = document.createElement("div");
  element.className = `record ${record.level}`;
  if (source === "") {
    const log = logOf(record);
    const writer = document.createElement("span");
    writer.className = "writer";
    writer.textContent = log === undefined ? "" : writerOf(log);
    element.append(writer);
  }
  marked(plain(record.text), choice.text).forEach((piece, index) => {
    if (index % 2 === 0) return element.append(piece);
    const mark = document.createElement("mark");
    mark.textContent = piece;
    element.append(mark);
  });
  return element;
}

// Adds a part before or after the others. A part without records only extends its neighbour.
function add(found, isFirst) {
  const neighbour = isFirst ? parts[0] : parts.at(-1);
  if (neighbour !== undefined && found.records.length === 0) {
    if (isFirst) [neighbour.start, neighbour.isFirst] = [found.start, found.isFirst];
    else neighbour.end = found.end;
    return;
  }
  const element = document.createElement("div");
  element.append(...found.records.map(recordElement));
  const added = { start: found.start, end: found.end, isFirst: found.isFirst, count: found.records.length, element };
  const height = view.scrollHeight;
  if (isFirst) {
    parts.unshift(added);
    view.prepend(element);
    view.scrollTop += view.scrollHeight - height;
  } else {
    parts.push(added);
    view.append(element);
  }
  for (let left = surplus(parts.map((each) => each.count), MOST_RECORDS, isFirst); left > 0; left -= 1) {
    const full = view.scrollHeight;
    (isFirst ? parts.pop() : parts.shift()).element.remove();
    if (isFirst) atEnd = false;
    else view.scrollTop -= full - view.scrollHeight;
  }
}

function tell(note = "") {
  if (parts.length === 0) return;
  hasFailed = false;
  const count = parts.reduce((sum, each) => sum + each.count, 0);
  const isWhole = parts[0].isFirst && atEnd;
  const what = choice.text !== "" || choice.level !== "" ? "matching " : "";
  let where = isWhole ? "in all logs" : "in the newest part of all logs";
  if (source !== "") where = isWhole ? `in the whole log, ${bytes(size)}` : `in ${bytes(parts.at(-1).end - parts[0].start)} of ${bytes(size)}`;
  state.textContent = `${count} ${what}${count === 1 ? "record" : "records"} ${where}${complete ? "; nothing more follows" : ""}${note}`;
  older.hidden = parts[0].isFirst;
  newest.hidden = atEnd;
}

async function tellFailure(error) {
  hasFailed = true;
  state.textContent = `The log cannot be read: ${error.message}`;
  if (error.status === undefined) lost("The JobManager does not answer. What you see may be out of date.", elsewhere());
  await followLeader(error.status === 401);
}

function missing(found) {
  const gone = found.missing.length > 0 ? `; logs on ${found.missing.join(", ")} are missing` : "";
  const until = found["kept-until"];
  const whose = source === "" ? "logs of lost task managers are" : "the task manager does not have this log now: it is";
  const kept = until > 0 ? `; ${whose} read from the shared storage, and lines after ${moment(until)} UTC are not kept` : "";
  return `${gone}${kept}${found.problem === "" ? "" : `; ${found.problem}`}`;
}

// Goes back until enough is found, or the start is reached.
async function back(wanted) {
  const shown = stopped;
  let count = 0;
  while (count < wanted && !parts[0].isFirst) {
    const found = await before(parts[0].start);
    if (shown !== stopped) return;
    add(found, true);
    count += found.records.length;
    tell(count < wanted && !found.isFirst ? ", searching further back …" : missing(found));
  }
}

async function show() {
  stopped.abort();
  stopped = new AbortController();
  wake();
  const shown = stopped;
  download.hidden = false;
  download.href = source === "" ? `${merged}/download?${new URLSearchParams({ ...allOf(choice), ...selection(choice) })}` : `${source}/download`;
  for (;;) {
    view.replaceChildren();
    [parts, atEnd, complete, isBusy] = [[], true, false, true];
    state.textContent = "Loading…";
    try {
      const found = await last();
      if (shown !== stopped) return;
      size = found.size;
      add(found, false);
      tell(missing(found));
      if (parts[0].count < FIRST_RECORDS) await back(FIRST_RECORDS - parts[0].count);
      if (shown !== stopped) return;
      view.scrollTop = view.scrollHeight;
      isBusy = false;
      return follow(shown);
    } catch (error) {
      if (shown !== stopped) return;
      await tellFailure(error);
      await pause(PAUSE_MS);
      if (shown !== stopped) return;
    }
  }
}

async function follow(shown) {
  while (shown === stopped && !complete) {
    if (!choice.follow || document.hidden || !atEnd) {
      await new Promise((resolve) => {
        wake = resolve;
      });
      continue;
    }
    try {
      const end = parts.at(-1).end;
      const found = await after(end);
      if (shown !== stopped || !atEnd) continue;
      if (found.start < end && source !== "") return show(); // the log was rotated
      const isAtBottom = view.scrollTop + view.clientHeight >= view.scrollHeight - 40;
      [size, complete] = [found.size, found.complete];
      add(found, false);
      if (isAtBottom) view.scrollTop = view.scrollHeight;
      if (found.end !== end || complete || hasFailed) tell(missing(found));
      if (complete) readList(); // there may be another attempt already
      if (source === "" && found.isLast && !complete) await pause(PAUSE_MS);
    } catch (error) {
      if (shown !== stopped) return;
      await tellFailure(error);
      await pause(PAUSE_MS);
    }
  }
}

async function showOlder() {
  if (isBusy || parts.length === 0 || parts[0].isFirst) return;
  isBusy = true;
  const shown = stopped;
  try {
    await back(1);
  } catch (error) {
    if (shown === stopped) tellFailure(error);
  } finally {
    if (shown === stopped) isBusy = false;
  }
}

function fillList(select, entries, chosen) {
  const offered = [...select.options].map((option) => option.textContent);
  if (offered.join("\n") === entries.map(({ text }) => text).join("\n")) {
    select.value = String(chosen); // a list that is open stays open
    return;
  }
  select.replaceChildren(
    ...entries.map(({ value, text }) => {
      const option = document.createElement("option");
      [option.value, option.textContent, option.selected] = [String(value), text, String(value) === String(chosen)];
      return option;
    }),
  );
}

function addressOfLog(log) {
  return `${list}/${encodeURIComponent(log.id)}`;
}

// Fills the lists of attempts, processes and streams from the logs of the job, and names what is shown.
function offer() {
  const log = logs.find((each) => addressOfLog(each) === source) ?? null;
  if (source !== "" && log === null) return;
  const attempt = log?.attempt ?? (choice.attempt || attemptsOf(logs)[0]);
  const process = log === null ? ALL : (log["executor-id"] ?? "");
  const own = logs.filter((each) => each.attempt === attempt && each["executor-id"] === log?.["executor-id"]);
  fillList(fields.attempt, attemptsToOffer(logs, attempt), attempt);
  fillList(fields.process, [{ value: ALL, text: "all, by time" }, ...processesOf(logs, attempt)], process);
  const streams = log === null ? ["stderr", "stderr and stdout"] : own.map(streamOf);
  const stream = log === null ? streams[choice.stdout ? 1 : 0] : streamOf(log);
  fillList(fields.stream, streams.map((each) => ({ value: each, text: each })), stream);
  for (const label of form.querySelectorAll("[data-choice]")) label.hidden = false;
  const title = log === null ? `Logs of attempt ${attempt}, by time` : `Log of ${log["executor-id"] ? writerOf(log) : "the driver"}, attempt ${attempt}`;
  document.getElementById("log-name").textContent = title;
  document.getElementById("log-id").textContent = log === null ? stream : `${stream} on task manager ${log["taskmanager-id"]}`;
  view.setAttribute("aria-label", title);
  setName(title);
}

async function readList() {
  if (list === undefined) return;
  try {
    logs = (await ask(list)).logs;
    if (logs.length > 0) offer();
  } catch {
    // records are shown without the lists, or with what they offered before
  }
}

// The newest attempt is over, and the job is not: the next attempt is offered once it has a log.
function offerNextAttempt() {
  const isNewest = logs.length > 0 && Number(fields.attempt.value) === attemptsOf(logs)[0];
  if (complete && isNewest && !ENDED.includes(document.documentElement.dataset.state)) readList();
}

// Shows another log, or all of an attempt, as the lists now say.
function open() {
  const attempt = Number(fields.attempt.value);
  if (fields.process.value === ALL) {
    choice = { ...choice, attempt, stdout: fields.stream.value.includes("stdout") && source === "" };
    source = "";
    history.pushState(null, "", addressOf(page, choice, true));
  } else {
    const log = nearest(logs, attempt, fields.process.value, fields.stream.value);
    if (log === null) return;
    source = addressOfLog(log);
    history.pushState(null, "", addressOf(`${page}/${encodeURIComponent(log.id)}`, choice, false));
  }
  offer();
  show();
  readList(); // executors may have begun since
}

// Applies the search, the level and whether to follow.
function apply() {
  const [old, wanted] = [choice, { text: fields.text.value, level: fields.level.value, follow: fields.follow.checked }];
  choice = { ...old, ...wanted };
  history.replaceState(null, "", addressOf(location.pathname, choice, source === ""));
  if (old.text !== choice.text || old.level !== choice.level) show();
  else if (choice.follow && !old.follow) view.scrollTop = view.scrollHeight;
  wake();
}

let typing = null;
fields.text.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(apply, TYPING_MS);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typing);
  apply();
});
for (const name of ["level", "follow"]) fields[name].addEventListener("change", apply);
for (const name of ["attempt", "process", "stream"]) fields[name].addEventListener("change", open);
older.addEventListener("click", showOlder);
newest.addEventListener("click", show);
view.addEventListener("scroll", () => {
  if (view.scrollTop < NEAR_PIXELS) showOlder();
});
document.addEventListener("visibilitychange", () => wake());
document.addEventListener("emberkeep:refreshed", offerNextAttempt);
addEventListener("popstate", () => location.reload());
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea") !== null) return;
  event.preventDefault();
  fields.text.focus();
});

[fields.text.value, fields.level.value, fields.follow.checked] = [choice.text, choice.level, choice.follow];
readList().then(show);
