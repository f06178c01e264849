// The button that cancels a job, after a question.

import { refresh } from "./live.js";

document.addEventListener("click", async (click) => {
  const button = click.target.closest("button");
  if (button === null) return;
  if (button.dataset.opens) document.getElementById(button.dataset.opens).showModal();
  else if ("closes" in button.dataset) button.closest("dialog").close();
  else if (button.dataset.cancels) await cancel(button, button.closest("dialog"));
});

async function cancel(button, dialog) {
  const error = dialog.querySelector("[data-error]");
  error.hidden = true;
  button.disabled = true;
  try {
    const response = await fetch(button.dataset.cancels, { method: "PATCH" });
    if (!response.ok) {
      const problem = await response.json();
      throw new Error(problem.hint ? `${problem.detail} (${problem.hint})` : problem.detail);
    }
    dialog.close();
    await refresh();
  } catch (failure) {
    error.textContent = failure.message;
    error.hidden = false;
  } finally {
    button.disabled = false;
  }
}
