// The plots of one streaming query.

import { bytes, count, seconds } from "./formats.js";
import { Plots } from "./plots.js";
import { measured, measuring, ofSource, phaseNames, phaseSeconds, shortName, sourceNames } from "./stream_series.js";

// One line for each source of a query that has several.
function bySource(id, title, text, field) {
  const series = (records) =>
    sourceNames(records).map((name) => ({ label: shortName(name), value: (record) => ofSource(record, name, field) }));
  return { id, title, left: text, series };
}

// One line for each source that counts by `measure` what is left, such as files. `label`: if it is the only source.
function byMeasure(id, title, text, measure, label, scale = 1) {
  const value = (name) => (record) => {
    const number = measured(record, name, measure);
    return number === null ? null : number * scale;
  };
  const series = (records) => {
    const several = sourceNames(records).length > 0;
    return measuring(records, measure).map((name) => ({ label: several ? shortName(name) : label, value: value(name) }));
  };
  return { id, title, left: text, onlyIfUsed: true, series };
}

const PLOTS = [
  {
    id: "rate",
    title: "Rows per second",
    left: count,
    series: () => [
      { label: "input", value: (record) => record["input-rows-per-second"] },
      { label: "processing", value: (record) => record["processed-rows-per-second"] },
    ],
  },
  {
    id: "rows",
    title: "Rows of a batch",
    left: count,
    series: () => [{ label: "read", value: (record) => record.rows }],
  },
  {
    id: "duration",
    title: "Batch duration by phase",
    left: seconds,
    stacked: true,
    series: (records) => phaseNames(records).map((name) => ({ label: name, value: (record) => phaseSeconds(record, name) })),
  },
  {
    id: "state",
    title: "State",
    onlyIfUsed: true, // a query without state reports 0
    left: count,
    right: bytes,
    series: () => [
      { label: "rows", value: (record) => record["state-rows"] },
      { label: "memory", value: (record) => record["state-bytes"], right: true },
    ],
  },
  {
    id: "commit",
    title: "Commit of the state, added over tasks",
    onlyIfUsed: true,
    left: seconds,
    series: () => [{ label: "took", value: (record) => record["state-commit-duration"] / 1000 }],
  },
  {
    id: "watermark",
    title: "Watermark behind the batch",
    left: seconds,
    series: () => [
      { label: "gap", value: (record) => (record["watermark-gap"] === null ? null : record["watermark-gap"] / 1000) },
    ],
  },
  {
    id: "late",
    title: "Late rows dropped",
    onlyIfUsed: true,
    left: count,
    series: () => [{ label: "rows", value: (record) => record["late-rows"] }],
  },
  {
    id: "backlog",
    title: "Backlog",
    left: count,
    right: seconds,
    series: () => [
      { label: "rows", value: (record) => record["backlog-rows"] },
      { label: "time to process it", value: (record) => record["backlog-seconds"], right: true },
    ],
  },
  byMeasure("backlog-files", "Backlog in files", count, "numFilesOutstanding", "left"),
  byMeasure("backlog-bytes", "Backlog in bytes", bytes, "numBytesOutstanding", "left"),
  byMeasure("backlog-time", "Behind the newest data", seconds, "maxMsBehindLatest", "behind", 1 / 1000),
  bySource("source-rate", "Rows per second by source", count, "input-rows-per-second"),
  bySource("source-backlog", "Backlog by source, in rows", count, "backlog-rows"),
  bySource("source-wait", "Time to process the backlog, by source", seconds, "backlog-seconds"),
];

// `elements`: see Plots.
export function streamPlots(elements) {
  return new Plots({
    ...elements,
    name: "streams",
    plots: PLOTS,
    noun: "batches",
    label: (record) => `batch ${record["batch-id"]}`,
  });
}
