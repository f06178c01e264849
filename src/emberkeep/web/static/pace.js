// How long an open page waits until it asks the server again. The server makes the whole page to know whether anything
// has changed, so a page on which nothing changes, or which nobody touches, asks less often.

export const SHORTEST_MS = 3000;
const ALONE_MS = 5000; // while nobody has touched the page for a while, or events tell what has changed
const ALONE_AFTER_MS = 20000;
const LONGEST_MS = 10000;

// `calmMs`: since the last change or touch. A quarter of it is waited: what has not changed for long may wait.
export function pauseAfter(calmMs, untouchedMs, isHearing) {
  const shortest = isHearing || untouchedMs >= ALONE_AFTER_MS ? ALONE_MS : SHORTEST_MS;
  return Math.min(LONGEST_MS, Math.max(shortest, calmMs / 4));
}
