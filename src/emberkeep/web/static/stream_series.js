// Turns progress records of the REST API into columns for plots, and the newest into a sentence. Nothing here touches
// the page.

import { count, seconds } from "./formats.js";

const PHASE_ORDER = ["latestOffset", "getOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitBatch", "commitOffsets"];
const WHOLE = "triggerExecution";
const REST = "other";

// The moments of the records in seconds. Between two runs of a query comes a moment without values, so that no line
// joins them. A moment without values at `until`, in milliseconds, follows if the last batch began before.
export function rows(records, until = 0) {
  const found = [];
  for (const [index, record] of records.entries()) {
    const before = records[index - 1];
    if (before && before["run-id"] !== record["run-id"]) found.push({ at: (record.triggered - 1) / 1000, record: null });
    found.push({ at: record.triggered / 1000, record });
  }
  if (found.length > 0 && until / 1000 > found.at(-1).at) found.push({ at: until / 1000, record: null });
  return found.filter((row, index) => index === 0 || row.at > found[index - 1].at);
}

export function column(found, value) {
  return found.map((row) => (row.record === null ? null : value(row.record)));
}

export function phaseNames(records) {
  const seen = new Set(records.flatMap((record) => Object.keys(record.phases)));
  seen.delete(WHOLE);
  const known = PHASE_ORDER.filter((name) => seen.delete(name));
  return [...known, ...[...seen].sort(), REST];
}

// Spark's phases do not cover the whole trigger: what is left is shown as "other".
export function phaseSeconds(record, name) {
  if (name !== REST) return (record.phases[name] ?? 0) / 1000;
  const covered = Object.entries(record.phases).reduce((sum, [phase, took]) => sum + (phase === WHOLE ? 0 : took), 0);
  return Math.max(0, (record.phases[WHOLE] ?? record.duration) - covered) / 1000;
}

// For each column the sum of itself and of those before it.
export function stacked(columns) {
  const sums = [];
  for (const values of columns) {
    const below = sums.at(-1);
    sums.push(values.map((value, index) => (value === null ? null : value + (below ? below[index] : 0))));
  }
  return sums;
}

// The newest batch in one sentence. `now` is the server's time in milliseconds.
export function summary(record, now) {
  const parts = [
    `Batch ${record["batch-id"]}, ${seconds(Math.max(0, now - record.triggered) / 1000)} ago: ` +
      `${count(record.rows)} rows in ${seconds(record.duration / 1000)}`,
  ];
  if (record["backlog-rows"] !== null) {
    const wait = record["backlog-seconds"];
    parts.push(`backlog ${count(record["backlog-rows"])} rows${wait === null ? "" : ` (${seconds(wait)} of work)`}`);
  }
  if (record.watermark !== null) parts.push(`watermark ${seconds(Math.max(0, now - record.watermark) / 1000)} behind now`);
  if (record["late-rows"] > 0) parts.push(`${count(record["late-rows"])} late rows dropped`);
  return parts.join(" · ");
}
