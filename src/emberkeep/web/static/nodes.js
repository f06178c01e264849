// The buttons that block a node or a task manager, after a form, and those that unblock it, after a question.

import { refresh } from "./live.js";
import { problemOf } from "./problems.js";
import { reach } from "./reach.js";

const HOUR_MS = 3600 * 1000;
const NAMES = { nodes: "node", taskmanagers: "task manager" };
const EVACUATE = "MARK_BLOCKED_AND_EVACUATE_TASKS";
const block = document.getElementById("block");
const unblock = document.getElementById("unblock");
const form = block.querySelector("form");
const confirmed = unblock.querySelector("[data-confirms]");

document.addEventListener("click", async (click) => {
  const button = click.target.closest("button");
  if (button === null) return;
  if ("blocks" in button.dataset) openBlock(button.dataset);
  else if ("unblocks" in button.dataset) openUnblock(button.dataset);
  else if ("closes" in button.dataset) button.closest("dialog").close();
  else if (button === confirmed) await send(unblock, button, confirmed.value, () => ({ method: "DELETE" }));
});

form.elements.action.addEventListener("change", describe);

form.addEventListener("submit", async (submit) => {
  submit.preventDefault();
  const fields = form.elements;
  const body = { action: fields.action.value, cause: fields.cause.value, allowMerge: fields.merge.checked };
  const length = fields.hours.value === "" ? null : Number(fields.hours.value) * HOUR_MS;
  if (fields.action.value !== "MARK_BLOCKED" && fields.drivers.value !== "") body.drivers = fields.drivers.value;
  const request = async () => {
    if (length !== null) body.endTimestamp = (await clock()) + length;
    return { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  };
  await send(block, submit.submitter, address(fields.kind.value, fields.id.value), request);
});

// Asks for what is not named by the button. A named node or task manager is in the title, and cannot be changed.
function openBlock({ blocks: id, kind, evacuates, merges }) {
  form.reset();
  const fields = form.elements;
  [fields.kind.value, fields.id.value] = [kind, id];
  if (evacuates !== undefined) fields.action.value = EVACUATE;
  fields.merge.checked = merges !== undefined;
  for (const asks of form.querySelectorAll("[data-asks]")) asks.hidden = id !== "";
  describe();
  open(block);
  (id === "" ? fields.id : fields.cause).focus();
}

// The title and the button say what happens.
function describe() {
  const { action, kind, id } = form.elements;
  const verb = action.value === EVACUATE ? "Evacuate" : "Block";
  const isNamed = form.querySelector("[data-asks]").hidden;
  block.querySelector("h2").textContent = isNamed ? `${verb} ${NAMES[kind.value]} ${id.value}?` : `${verb} a node or task manager`;
  block.querySelector("[type=submit]").textContent = verb;
}

function openUnblock({ unblocks: id, kind, cause }) {
  confirmed.value = address(kind, id);
  unblock.querySelector("[data-cause]").textContent = cause;
  unblock.querySelector("h2").textContent = `Unblock ${NAMES[kind]} ${id}?`;
  open(unblock);
}

function open(dialog) {
  dialog.querySelector("[data-error]").hidden = true;
  dialog.showModal();
}

function address(kind, id) {
  return `${form.dataset.api}/${kind}/${encodeURIComponent(id)}`;
}

// The JobManager's clock, not this computer's, decides when an entry ends. Its time is known in whole seconds.
async function clock() {
  const response = await reach(form.dataset.api);
  const moment = Date.parse(response.headers.get("Date"));
  if (Number.isNaN(moment)) throw new Error("The JobManager's reply has no time: choose \"until it is unblocked\"");
  return moment + 1000;
}

// Closes the dialog when the JobManager has done what it asks for.
async function send(dialog, button, path, request) {
  const error = dialog.querySelector("[data-error]");
  error.hidden = true;
  button.disabled = true;
  try {
    const response = await reach(path, await request());
    if (!response.ok) throw await problemOf(response);
    dialog.close();
    await refresh();
  } catch (failure) {
    error.textContent = failure.message;
    error.hidden = false;
  } finally {
    button.disabled = false;
  }
}
