// Turns the course of a job into rows for plots, and into a sentence. Nothing here touches the page.

import { count, moment, seconds } from "./formats.js";

function numbers(text) {
  return (text ?? "").split(" ").filter(Boolean).map(Number);
}

// The samples, oldest first. `data`: the attributes of the element that has them. `tasks`: done until the end
// of the sample. `rate`: tasks per second in it.
export function samples(data) {
  const [began, step] = [Number(data.began), Number(data.step)];
  const executors = numbers(data.executors);
  return numbers(data.tasks).map((tasks, index, all) => ({
    time: began + index * step,
    step,
    tasks,
    executors: executors[index] ?? 0,
    rate: ((tasks - (index === 0 ? 0 : all[index - 1])) * 1000) / step,
  }));
}

// A row for each sample, in seconds, and one without values at `until`, in milliseconds, if that is later.
export function courseRows(found, until = 0) {
  const rows = found.map((sample) => ({ at: sample.time / 1000, record: sample }));
  if (rows.length > 0 && until / 1000 > rows.at(-1).at) rows.push({ at: until / 1000, record: null });
  return rows;
}

export function summary(found) {
  const newest = found.at(-1);
  const most = Math.max(...found.map((sample) => sample.executors));
  return [
    `${count(newest.tasks)} tasks done since ${moment(found[0].time)}, by all attempts`,
    `at most ${count(most)} executors`,
    `a sample for each ${seconds(newest.step / 1000)}`,
  ].join(" · ");
}
