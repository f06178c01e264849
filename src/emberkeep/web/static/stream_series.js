// Turns progress records of the REST API into columns for plots, and the newest into a sentence. Nothing here touches
// the page.

import { bytes, count, seconds } from "./formats.js";

const PHASE_ORDER = ["latestOffset", "getOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitBatch", "commitOffsets"];
const WHOLE = "triggerExecution";
const REST = "other";
const SOURCES = 8; // as many as there are colours
const LONGEST = 48; // characters of a source's name in a legend

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

// The names of the sources of these records, those of the newest record first: what Spark calls them, with a number
// where several have the same name. Nothing if no record has two sources: the plots of the whole query show them.
export function sourceNames(records) {
  return records.some((record) => record.sources.length > 1) ? allNames(records) : [];
}

// The names of those sources of these records that say by `measure`, one of their own numbers, what is left.
export function measuring(records, measure) {
  const says = (record, name) => measured(record, name, measure) !== null;
  return allNames(records).filter((name) => records.some((record) => says(record, name)));
}

function allNames(records) {
  const found = new Set();
  for (let index = records.length - 1; index >= 0 && found.size < SOURCES; index -= 1) {
    for (const name of named(records[index]).keys()) found.add(name);
  }
  return [...found].slice(0, SOURCES);
}

const known = new WeakMap(); // the sources of a record by name; each plot asks for them

function named(record) {
  if (!known.has(record)) {
    const sources = new Map();
    for (const source of record.sources) {
      let name = source.description;
      for (let number = 2; sources.has(name); number += 1) name = `${source.description} (${number})`;
      sources.set(name, source);
    }
    known.set(record, sources);
  }
  return known.get(record);
}

// A number of one source in a record; null if the record does not have this source.
export function ofSource(record, name, field) {
  return named(record).get(name)?.[field] ?? null;
}

// A number that one source in a record reports itself; null if it does not.
export function measured(record, name, measure) {
  return named(record).get(name)?.metrics?.[measure] ?? null;
}

// Long names, such as those with paths, lose their middle.
export function shortName(name) {
  const half = (LONGEST - 1) / 2;
  return name.length <= LONGEST ? name : `${name.slice(0, Math.ceil(half))}…${name.slice(-Math.floor(half))}`;
}

// The backlogs of a record in a cell of a table: that of the query, and those of its sources, in their order, if it has
// several.
export function backlogs(record) {
  const rows = count(record["backlog-rows"]);
  if (record.sources.length < 2) return rows;
  return `${rows} (${record.sources.map(backlogOf).join(" + ")})`;
}

// The backlog of a source: in rows, or as the source counts it itself if nobody knows how many rows that is.
export function backlogOf(source) {
  if (source["backlog-rows"] !== null) return count(source["backlog-rows"]);
  const { numFilesOutstanding, numBytesOutstanding, maxMsBehindLatest } = source.metrics ?? {};
  const parts = [];
  if (numFilesOutstanding !== undefined) parts.push(`${count(numFilesOutstanding)} files`);
  if (numBytesOutstanding !== undefined) parts.push(bytes(numBytesOutstanding));
  if (maxMsBehindLatest !== undefined) parts.push(`${seconds(maxMsBehindLatest / 1000)} behind`);
  return parts.join(", ") || count(null);
}

// What a source reports itself, under its own names.
export function reported(source) {
  const numbers = Object.entries(source.metrics ?? {});
  return numbers.map(([name, number]) => `${name} ${count(number)}`).join(", ") || count(null);
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
  if (record.sources.length > 1) {
    const behind = [...named(record)].filter(([, source]) => source["backlog-rows"] > 0);
    behind.sort(([, one], [, other]) => other["backlog-rows"] - one["backlog-rows"]);
    if (behind.length > 0) {
      const [name, source] = behind[0];
      parts.push(`the source with the largest backlog is ${shortName(name)}: ${count(source["backlog-rows"])} rows`);
    }
  }
  if (record.watermark !== null) parts.push(`watermark ${seconds(Math.max(0, now - record.watermark) / 1000)} behind now`);
  if (record["late-rows"] > 0) parts.push(`${count(record["late-rows"])} late rows dropped`);
  return parts.join(" · ");
}
