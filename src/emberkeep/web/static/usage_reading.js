// Reads histories of usage from the REST API, each from where the reading before has ended, as often as there is a new
// sample.

import { bodyOf } from "./problems.js";
import { reach } from "./reach.js";
import { continued, hasGap, together } from "./usage_series.js";

let histories = new Map(); // by address

async function ask(address, after) {
  const response = await reach(`${address}?after=${after}`, { cache: "no-store" });
  const answer = await bodyOf(response);
  if (!response.ok) throw new Error(answer.detail);
  return answer;
}

async function read(address) {
  const known = histories.get(address);
  const last = known?.samples.at(-1)?.time ?? 1;
  const answer = await ask(address, last - 1);
  const isMissing = known !== undefined && hasGap(known, answer); // a new leader, or a page that slept for an hour
  return isMissing ? continued(undefined, await ask(address, 0)) : continued(known, answer);
}

async function readHistories(addresses) {
  const answers = await Promise.all(addresses.map(read));
  histories = new Map(answers.map((answer, index) => [addresses[index], answer]));
  return answers;
}

// Lets `draw` show the sum of the histories at `addresses()` now and whenever the page has been refreshed. `problem` is
// the element that says why it cannot be read, if `section` shows something already.
export function followUsage(addresses, { section, problem }, draw) {
  let usage = null;
  let readAt = -Infinity;
  let busy = false;

  async function update() {
    if (busy || performance.now() - readAt < (usage?.samples.at(-1)?.step ?? 0)) return; // there is no new sample yet
    busy = true;
    readAt = performance.now();
    try {
      usage = together(await readHistories(addresses())) ?? usage;
      problem.hidden = true;
      if (usage !== null && usage.samples.length > 0) await draw(usage);
    } catch (error) {
      problem.textContent = `The history cannot be read now: ${error.message}`;
      problem.hidden = section.hidden;
    } finally {
      busy = false;
    }
  }

  document.addEventListener("emberkeep:refreshed", update);
  update();
}
