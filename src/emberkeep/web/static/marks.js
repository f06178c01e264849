// What happened, as marks: to a job on its timeline and in the plots of its streaming queries, to a node in its plots.
// Nothing here touches the page, except that `readMarks` reads the table it is given.

import { moment } from "./formats.js";

const LONGEST = 110; // characters of a message next to the cursor

// Each group has a shape of its own, so that colour is not the only difference. Shapes are SVG paths around 0, 0.
// `lane`: the row of the timeline that shows the group.
export const GROUPS = [
  {
    lane: "Attempts",
    legend: "attempt started, or found running",
    kinds: ["attempt-started", "reattached"],
    shape: "M0-5.5L5.5 4.5H-5.5Z",
  },
  {
    lane: "Attempts",
    legend: "attempt ended",
    kinds: ["attempt-ended"],
    shape: "M0 5.5L5.5-4.5H-5.5Z",
  },
  {
    lane: "Executors",
    legend: "executors ended",
    kinds: ["executors-ended"],
    shape: "M-5.5-2H5.5V2H-5.5Z",
  },
  {
    lane: "Executors",
    legend: "slots missing or given back, or number of executors changed",
    kinds: ["slots-missing", "slots-reclaimed", "executors-scaled"],
    shape: "M-5-5.5H5L-5 5.5H5Z",
  },
  {
    lane: "Alarms",
    legend: "alarm raised or cleared",
    kinds: ["alarm-raised", "alarm-cleared"],
    shape: "M0-6L6 0L0 6L-6 0Z",
  },
  {
    lane: "Requests",
    legend: "savepoint, stop, move or cancellation",
    kinds: [
      "requested",
      "savepoint",
      "periodic-savepoint",
      "periodic-savepoint-failed",
      "request-failed",
      "cancel-requested",
      "moving",
    ],
    shape: "M-4.5-4.5H4.5V4.5H-4.5Z",
  },
  {
    lane: "Upgrades",
    legend: "upgrade to new code, or back",
    kinds: ["upgrade"],
    shape: "M0-6L5.5 0H2.5V5.5H-2.5V0H-5.5Z",
  },
  {
    lane: "Failures",
    legend: "failure that the attempt survived",
    kinds: ["exception"],
    shape: "M-5-3L-3-5L0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z",
  },
  {
    lane: "Leaders",
    legend: "new leader",
    kinds: ["leader-started"],
    shape: "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1-5 0Z",
  },
];

// What happens to a node and its task managers.
export const NODE_GROUPS = [
  {
    legend: "task manager registered, or back",
    kinds: ["task-manager-registered", "task-manager-back"],
    shape: "M0-5.5L5.5 4.5H-5.5Z",
  },
  {
    legend: "task manager silent, lost or gone",
    kinds: ["task-manager-silent", "task-manager-lost", "task-manager-left"],
    shape: "M0 5.5L5.5-4.5H-5.5Z",
  },
  {
    legend: "blocked, evacuated or unblocked",
    kinds: ["blocked", "unblocked"],
    shape: "M-4.5-4.5H4.5V4.5H-4.5Z",
  },
  {
    legend: "blocked because processes keep failing",
    kinds: ["detected"],
    shape: "M0-6L6 0L0 6L-6 0Z",
  },
  {
    legend: "disk full, or with room again",
    kinds: ["disk-full", "disk-has-room"],
    shape: "M-5.5-2.5H5.5V2.5H-5.5Z",
  },
];

const ALL_GROUPS = [...GROUPS, ...NODE_GROUPS];

// The marks in a table's rows, in order of time.
export function readMarks(table) {
  return [...table.querySelectorAll("tr[data-mark]")]
    .map((row) => ({
      kind: row.dataset.mark,
      tone: row.dataset.tone,
      at: Number(row.dataset.at),
      message: row.querySelector("[data-message]").textContent.trim(),
    }))
    .sort((one, other) => one.at - other.at);
}

const GROUP_OF_KIND = new Map(ALL_GROUPS.flatMap((group) => group.kinds.map((kind) => [kind, group])));

export function groupOf(mark) {
  return GROUP_OF_KIND.get(mark.kind);
}

// The groups that have a mark, in their order.
export function groupsOf(marks) {
  return ALL_GROUPS.filter((group) => marks.some((mark) => groupOf(mark) === group));
}

// The marks of the time that the rows of a plot cover, and of the time since. Earlier ones are in the table only.
export function since(marks, found) {
  return found.length === 0 ? [] : marks.filter((mark) => groupOf(mark) !== undefined && mark.at >= found[0].at * 1000);
}

// The marks within `reach` seconds of a time in seconds.
export function near(marks, at, reach) {
  return marks.filter((mark) => Math.abs(mark.at / 1000 - at) <= reach);
}

// The moments at which arrow keys stop, in seconds: each record and each mark.
export function stops(found, marks) {
  const moments = [...found.filter((row) => row.record !== null).map((row) => row.at), ...marks.map((mark) => mark.at / 1000)];
  return [...new Set(moments)].sort((one, other) => one - other);
}

// For each record, the marks from its begin on until the next one. `begin`: the name of the field with that time.
export function perRecord(records, marks, begin) {
  return records.map((record, index) => {
    const next = records[index + 1]?.[begin] ?? Infinity;
    return marks.filter((mark) => mark.at >= record[begin] && mark.at < next);
  });
}

// A mark in a line: its message says what happened, and has the attempt or the name of the request.
export function markText(mark) {
  const message = mark.message || mark.kind;
  const text = message.length > LONGEST ? `${message.slice(0, LONGEST - 1)}…` : message;
  return `${moment(mark.at).slice(11)} ${mark.kind === "leader-started" ? `new leader: ${text}` : text}`;
}
