// Keeps a page fresh: fetches the page again and replaces the parts that have changed.
//
// Parts are elements with `data-live` and an id. The markup comes from the same server and the same escaping templates
// as the page itself, so it is exactly as trustworthy as a reload; nothing else is ever parsed as HTML.
//
// Other modules hear `emberkeep:refreshed` after each fetch, and `emberkeep:changed` when parts were replaced.

import { heardTime, serverTime, setAges } from "./ages.js";
import { answered, keepLostIcon, lost, setIcon } from "./connection.js";
import { elsewhere, followLeader, heard } from "./follow.js";
import { pauseAfter, SHORTEST_MS } from "./pace.js";
import { titleOf } from "./page_title.js";
import { reach } from "./reach.js";

const AT_MOST_EVERY_MS = 500;
const EVENTS_EVERY_MS = 2000; // between two fetches because of events: a stream may commit several batches a second
const PATIENCE_MS = 10000; // a connection that is cut off says nothing
const TOUCHES = ["pointerdown", "pointermove", "keydown", "wheel", "focus"];

let events = null;
let timer = null;
let dueAt = Infinity; // when the timer ends
let busy = false;
let next = null; // milliseconds until the next fetch, if it was asked for while one is under way
let fetchedAt = -Infinity;
let changedAt = performance.now();
let touchedAt = performance.now(); // by the reader; a failure counts, too, because it should end soon
let shown = ""; // the ETag of what the whole page shows; "" if unknown

// Returns the page and its ETag, or null if there is nothing new to show.
async function fetchPage() {
  const patience = AbortSignal.timeout(PATIENCE_MS);
  const headers = { Accept: "text/html" };
  if (shown !== "") headers["If-None-Match"] = shown;
  const known = document.querySelector("[data-tag]")?.dataset.tag; // large parts that need not be sent again
  if (known !== undefined) headers["Emberkeep-Known"] = known;
  const response = await reach(location.href, { headers, cache: "no-store", signal: patience });
  heard(response);
  if (response.status === 401 || response.status === 403) {
    lost("This session has ended: reload the page to log in.");
    await followLeader(response.status === 401);
    return { isReply: false };
  }
  heardTime(response);
  if (response.status === 304) {
    answered();
    return { isReply: true, markup: null };
  }
  if (!response.ok || !response.headers.get("Content-Type")?.startsWith("text/html")) {
    throw new Error(`HTTP status ${response.status}`);
  }
  answered();
  return { isReply: true, markup: await response.text(), tag: response.headers.get("ETag") ?? "" };
}

function show({ markup, tag }) {
  const now = serverTime();
  setAges(document, now);
  if (markup === null) return; // an idle page costs next to nothing
  if (document.querySelector("[data-heals]") !== null) return location.reload(); // it was a page about an error
  const fresh = new DOMParser().parseFromString(markup, "text/html");
  setAges(fresh, now);
  const { isWhole, replaced } = replaceParts(fresh);
  shown = isWhole ? tag : "";
  if (replaced.size > 0 || !isWhole) changedAt = performance.now();
  if (replaced.size > 0) document.dispatchEvent(new CustomEvent("emberkeep:changed", { detail: replaced }));
}

// Returns the ids of the parts that were replaced, and whether none is left as it is because the reader is busy with it.
function replaceParts(fresh) {
  let isWhole = true;
  const replaced = new Set();
  const title = titleOf(fresh);
  if (document.title !== title) document.title = title;
  document.documentElement.dataset.state = fresh.documentElement.dataset.state;
  setIcon(fresh.getElementById("icon").getAttribute("href")); // every page has one
  for (const old of document.querySelectorAll("[data-live]")) {
    const part = fresh.getElementById(old.id);
    if (part === null || part.dataset.known !== undefined) continue;
    // Sections that the reader has opened stay open.
    for (const open of old.querySelectorAll("details[open]")) fresh.getElementById(open.id)?.setAttribute("open", "");
    if (old.isEqualNode(part)) continue;
    const hasFocus = old.contains(document.activeElement) && old.querySelector(":focus-visible");
    const isSelected = document.getSelection()?.containsNode(old, true) && !document.getSelection().isCollapsed;
    if (hasFocus || isSelected) isWhole = false;
    else {
      old.replaceWith(document.importNode(part, true));
      replaced.add(old.id);
    }
  }
  return { isWhole, replaced };
}

export async function refresh() {
  if (busy) {
    next = AT_MOST_EVERY_MS;
    return;
  }
  busy = true;
  clearTimeout(timer);
  fetchedAt = performance.now();
  try {
    const reply = await fetchPage();
    if (reply.isReply) {
      show(reply);
      document.dispatchEvent(new Event("emberkeep:refreshed"));
      listen();
    } else touchedAt = performance.now();
  } catch (error) {
    touchedAt = performance.now();
    const why = error.name === "TimeoutError" ? `the JobManager has not answered for ${PATIENCE_MS / 1000} s` : error.message;
    lost(`What you see may be out of date: ${why}.`, elsewhere());
    await followLeader(false);
  } finally {
    busy = false;
    wait(next ?? pause());
    next = null;
  }
}

function pause() {
  const now = performance.now();
  return pauseAfter(now - Math.max(changedAt, touchedAt), now - touchedAt, events?.readyState === EventSource.OPEN);
}

function wait(milliseconds) {
  clearTimeout(timer);
  dueAt = performance.now() + milliseconds;
  timer = setTimeout(tick, milliseconds);
}

// The reader is here, so what is shown should be new: a long pause ends.
function touched() {
  touchedAt = performance.now();
  const soon = Math.max(touchedAt, fetchedAt + pause());
  if (!busy && !document.hidden && soon < dueAt) wait(soon - touchedAt);
}

// Something has changed. It is shown at once, unless the page was fetched a moment ago.
function refreshSoon() {
  const left = fetchedAt + EVENTS_EVERY_MS - performance.now();
  if (busy) next ??= EVENTS_EVERY_MS;
  else if (left <= 0) refresh();
  else wait(left);
}

function tick() {
  if (document.hidden) wait(SHORTEST_MS);
  else refresh();
}

// The page of a running job receives events, so that it shows changes at once.
function listen() {
  const source = document.querySelector("[data-events]")?.dataset.events ?? null;
  if (source === null || document.hidden) {
    events?.close();
    events = null;
  } else if (events === null || events.readyState === EventSource.CLOSED) {
    events = new EventSource(source);
    let first = true;
    events.addEventListener("job", () => {
      if (!first) refreshSoon();
      first = false;
    });
    events.addEventListener("end", () => {
      events?.close();
      events = null;
      refresh();
    });
  }
}

if (document.querySelector("[data-live]") !== null) {
  keepLostIcon();
  wait(SHORTEST_MS);
  setInterval(() => {
    if (!document.hidden) setAges(document, serverTime());
  }, SHORTEST_MS);
  document.addEventListener("visibilitychange", () => {
    touchedAt = performance.now();
    if (!document.hidden) refresh();
    else listen();
  });
  for (const touch of TOUCHES) addEventListener(touch, touched, { capture: true, passive: true });
  addEventListener("online", refresh);
  listen();
}
