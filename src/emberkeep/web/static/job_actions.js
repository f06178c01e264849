// The buttons that cancel a job, stop it or make a savepoint. Each asks for confirmation first.

import { refresh } from "./live.js";
import { problemOf } from "./problems.js";
import { reach } from "./reach.js";

document.addEventListener("click", async (click) => {
  const button = click.target.closest("button");
  if (button === null) return;
  if (button.dataset.opens) document.getElementById(button.dataset.opens).showModal();
  else if ("closes" in button.dataset) button.closest("dialog").close();
  else if (button.dataset.sends) await send(button, button.closest("dialog"));
});

async function send(button, dialog) {
  const error = dialog.querySelector("[data-error]");
  const [method, address] = button.dataset.sends.split(" ");
  const request = { method };
  if (button.dataset.body) {
    request.body = button.dataset.body;
    request.headers = { "Content-Type": "application/json" };
  }
  error.hidden = true;
  button.disabled = true;
  try {
    const response = await reach(address, request);
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
