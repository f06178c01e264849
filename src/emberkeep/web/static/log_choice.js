// Which log a page shows, which records of it, and the addresses that say so. Nothing here touches the page.

export const LEVELS = ["trace", "debug", "info", "warn", "error", "fatal"];

// What the query of the page's address selects.
export function choiceOf(search) {
  const query = new URLSearchParams(search);
  const level = query.get("level") ?? "";
  return {
    text: (query.get("text") ?? "").slice(0, 200),
    level: LEVELS.includes(level) ? level : "",
    follow: query.get("follow") !== "no",
    attempt: /^[0-9]{1,9}$/.test(query.get("attempt") ?? "") ? Number(query.get("attempt")) : 0,
    stdout: query.get("stdout") === "true",
  };
}

// The page's address that leads to the same choice again. `merged`: the page shows all logs of an attempt.
export function addressOf(path, choice, merged) {
  const query = new URLSearchParams({ ...(merged ? allOf(choice) : {}), ...selection(choice) });
  if (!choice.follow) query.set("follow", "no");
  return query.size > 0 ? `${path}?${query}` : path;
}

// The parameters of the REST API for a choice.
export function selection(choice) {
  const given = {};
  if (choice.text !== "") given.text = choice.text;
  if (choice.level !== "") given.level = choice.level;
  return given;
}

// The parameters of the REST API that say which logs are merged.
export function allOf(choice) {
  const given = {};
  if (choice.attempt > 0) given.attempt = String(choice.attempt);
  if (choice.stdout) given.stdout = "true";
  return given;
}

// The name of the process that has written a log.
export function writerOf(log) {
  return log["executor-id"] ? `executor ${log["executor-id"]}` : "driver";
}

export function attemptsOf(logs) {
  return [...new Set(logs.map((log) => log.attempt))].sort((one, other) => other - one);
}

// The attempts that a list offers, as values and texts: those with logs, and the one that is shown if it has none.
export function attemptsToOffer(logs, shown) {
  const entries = attemptsOf(logs).map((attempt) => ({ value: attempt, text: String(attempt) }));
  if (entries.some(({ value }) => value === shown)) return entries;
  return [...entries, { value: shown, text: `${shown} (no logs)` }].sort((one, other) => other.value - one.value);
}

// The processes of an attempt, as values and texts of a list: the driver first, then the executors by number.
export function processesOf(logs, attempt) {
  const ids = new Set(logs.filter((log) => log.attempt === attempt).map((log) => log["executor-id"] ?? ""));
  return [...ids].sort((one, other) => Number(one) - Number(other)).map((id) => ({ value: id, text: writerOf({ "executor-id": id }) }));
}

export function streamOf(log) {
  return log.kind.endsWith("stdout") ? "stdout" : "stderr";
}

// The log that comes nearest to what is wanted: of the attempt; there of the process, else of the driver; there the stream.
export function nearest(logs, attempt, process, stream) {
  const rank = (log) => ((log["executor-id"] ?? "") === process ? 4 : (log["executor-id"] ?? "") === "" ? 2 : 0) + (streamOf(log) === stream ? 1 : 0);
  const own = logs.filter((log) => log.attempt === attempt);
  return own.reduce((best, log) => (best === null || rank(log) > rank(best) ? log : best), null);
}

// Splits a text at the places where it contains the wanted one, in any case: [text, found, text, found, …, text].
export function marked(text, wanted) {
  const [lower, sought] = [text.toLowerCase(), wanted.toLowerCase()];
  if (sought === "" || lower.length !== text.length) return [text];
  const parts = [];
  let begin = 0;
  for (let at = lower.indexOf(sought); at >= 0; at = lower.indexOf(sought, begin)) {
    parts.push(text.slice(begin, at), text.slice(at, at + sought.length));
    begin = at + sought.length;
  }
  return [...parts, text.slice(begin)];
}

const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])/g;

// Text without the colours and movements of a terminal.
export function plain(text) {
  return text.replace(ESCAPES, "");
}

// The parts of a log to remove so that at most `most` records are left: from the far side of the one that was added.
export function surplus(counts, most, addedFirst) {
  let total = counts.reduce((sum, count) => sum + count, 0);
  let removed = 0;
  const order = addedFirst ? [...counts].reverse() : counts;
  while (removed < order.length - 1 && total > most) total -= order[removed++];
  return removed;
}
