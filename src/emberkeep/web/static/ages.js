// How long something has lasted: sets those texts as time passes, so that the page need not be fetched for them.
//
// Elements with `data-since` have the instant, in Unix milliseconds by the server's clock. The server's pages have the
// texts, too: for readers without scripts.

import { lasted } from "./formats.js";

let ahead = Number(document.documentElement.dataset.now) - Date.now(); // the server's clock, before this browser's

// The server's time in Unix milliseconds.
export function serverTime() {
  return Date.now() + ahead;
}

// Sets the clock by a reply.
export function heardTime(response) {
  const time = Number(response.headers.get("Emberkeep-Time"));
  if (time > 0) ahead = time - Date.now();
}

// Sets the texts that have changed.
export function setAges(place, now) {
  for (const element of place.querySelectorAll("[data-since]")) {
    const text = lasted(now - Number(element.dataset.since));
    if (element.textContent !== text) element.textContent = text;
  }
}
