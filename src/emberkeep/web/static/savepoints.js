// The buttons of savepoints: one has a savepoint read and compared with its manifest, one copies a command.
//
// The table is replaced when something changes, so the progress of a verification is put back, and what is said of the
// command that was copied last. The JobManager remembers complete verifications.

import { bytes } from "./formats.js";
import { refresh } from "./live.js";
import { bodyOf, problemOf } from "./problems.js";
import { reach } from "./reach.js";
import { pieces } from "./savepoint_pieces.js";

const MOST_PROBLEMS = 3;
const BUSY_PAUSE_MS = 2000;
const BUSY_TRIES = 60;

const results = new Map(); // path of the savepoint → { text, bad, busy }
let copied = { command: "", text: "" }; // the command that was copied last

document.addEventListener("click", (click) => {
  const button = click.target.closest("button");
  if (button?.dataset.verifies) verify(button.dataset.verifies);
  else if (button?.dataset.copies) copy(button);
});
document.addEventListener("emberkeep:refreshed", show);

function show() {
  for (const place of document.querySelectorAll("[data-verified]")) {
    const result = results.get(place.dataset.verified);
    if (result === undefined) continue;
    place.textContent = result.text;
    place.classList.toggle("bad", result.bad);
    const button = place.parentElement.querySelector("[data-verifies]");
    if (button !== null) button.disabled = result.busy;
  }
  for (const button of document.querySelectorAll("[data-copies]")) {
    button.textContent = button.dataset.copies === copied.command ? copied.text : "Copy";
  }
}

function say(path, text, { bad = false, busy = false } = {}) {
  results.set(path, { text, bad, busy });
  show();
}

async function request(address, options = {}) {
  for (let attempt = 1; ; attempt += 1) {
    const response = await reach(address, { cache: "no-store", ...options });
    if (response.ok) return bodyOf(response);
    if (response.status !== 503 || attempt === BUSY_TRIES) throw await problemOf(response);
    await new Promise((resolve) => setTimeout(resolve, BUSY_PAUSE_MS)); // another check is under way
  }
}

async function verify(path) {
  const api = document.getElementById("savepoints").dataset.api;
  const check = (body) =>
    request(`${api}/savepoint-verification`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ "savepoint-path": path, ...body }),
    });
  say(path, "reading…", { busy: true });
  try {
    const { files } = await request(`${api}/savepoints/manifest?${new URLSearchParams({ path })}`);
    const found = [];
    let warnings = [];
    let read = 0;
    for (const piece of pieces(files)) {
      const answer = await check({ first: piece.first, count: piece.count });
      found.push(...answer.problems);
      warnings = answer.warnings;
      read += piece.size;
      say(path, `reading: ${bytes(read)}`, { busy: true });
    }
    const told = found.slice(0, MOST_PROBLEMS).join("; ");
    if (found.length > 0) say(path, `damaged: ${told}${found.length > MOST_PROBLEMS ? "; …" : ""}`, { bad: true });
    else say(path, [`intact: ${files.length} files, ${bytes(read)}`, ...warnings].join("; "), { bad: warnings.length > 0 });
    results.delete(path); // the JobManager knows it now, and the fetched page has what it knows
    await refresh();
  } catch (error) {
    say(path, error.status === 404 ? "gone: there is no savepoint in its directory" : `not verified: ${error.message}`, { bad: true });
  }
}

async function copy(button) {
  const command = button.dataset.copies;
  try {
    await navigator.clipboard.writeText(command);
    copied = { command, text: "Copied" };
  } catch {
    getSelection().selectAllChildren(button.parentElement.querySelector("code")); // no permission: the reader copies
    copied = { command, text: "Press Ctrl+C" };
  }
  show(); // the button may have been replaced meanwhile
}
