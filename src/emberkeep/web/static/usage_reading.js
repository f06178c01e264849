// Reads histories of usage from the REST API, each from where the reading before has ended.

import { continued, hasGap } from "./usage_series.js";

let histories = new Map(); // by address

async function ask(address, after) {
  const response = await fetch(`${address}?after=${after}`, { cache: "no-store" });
  const answer = await response.json();
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

// Returns the histories at these addresses, as far as they are known now.
export async function readHistories(addresses) {
  const answers = await Promise.all(addresses.map(read));
  histories = new Map(answers.map((answer, index) => [addresses[index], answer]));
  return answers;
}
