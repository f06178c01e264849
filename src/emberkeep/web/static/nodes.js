// The buttons that block a node or a task manager, after a form, and those that unblock it.

import { refresh } from "./live.js";
import { problemOf } from "./problems.js";

const HOUR_MS = 3600 * 1000;
const dialog = document.getElementById("block");
const form = dialog.querySelector("form");
const formError = dialog.querySelector("[data-error]");
const pageError = document.getElementById("node-error");

document.addEventListener("click", async (click) => {
  const button = click.target.closest("button");
  if (button === null) return;
  if ("blocks" in button.dataset) open(button);
  else if ("closes" in button.dataset) dialog.close();
  else if (button.dataset.unblocks) await send(button, pageError, button.dataset.unblocks, () => ({ method: "DELETE" }));
});

form.addEventListener("submit", async (submit) => {
  submit.preventDefault();
  const fields = form.elements;
  const body = { action: fields.action.value, cause: fields.cause.value, allowMerge: fields.merge.checked };
  const length = fields.hours.value === "" ? null : Number(fields.hours.value) * HOUR_MS;
  if (fields.action.value !== "MARK_BLOCKED" && fields.drivers.value !== "") body.drivers = fields.drivers.value;
  const path = `${form.dataset.api}/${fields.kind.value}/${encodeURIComponent(fields.id.value)}`;
  const request = async () => {
    if (length !== null) body.endTimestamp = (await clock()) + length;
    return { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  };
  if (await send(submit.submitter, formError, path, request)) dialog.close();
});

function open(button) {
  form.reset();
  formError.hidden = true;
  form.elements.kind.value = button.dataset.kind;
  form.elements.id.value = button.dataset.blocks;
  if ("merges" in button.dataset) [form.elements.action.value, form.elements.merge.checked] = ["MARK_BLOCKED_AND_EVACUATE_TASKS", true];
  dialog.showModal();
  (button.dataset.blocks === "" ? form.elements.id : form.elements.cause).focus();
}

// The JobManager's clock, not this computer's, decides when an entry ends. Its time is known in whole seconds.
async function clock() {
  const response = await fetch(form.dataset.api);
  const moment = Date.parse(response.headers.get("Date"));
  if (Number.isNaN(moment)) throw new Error("The JobManager's reply has no time: choose \"until it is unblocked\"");
  return moment + 1000;
}

async function send(button, error, path, request) {
  error.hidden = true;
  button.disabled = true;
  try {
    const response = await fetch(path, await request());
    if (!response.ok) throw await problemOf(response);
    await refresh();
    return true;
  } catch (failure) {
    error.textContent = failure.message;
    error.hidden = false;
    return false;
  } finally {
    button.disabled = false;
  }
}
