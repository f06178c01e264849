// Turns the course of a job into rows for plots, and into a sentence. Nothing here touches the page.

import { bytes, count, moment, percent, seconds } from "./formats.js";

function numbers(text) {
  return (text ?? "").split(" ").filter(Boolean).map(Number);
}

// What each sample adds to sums that are those until its end. Null where they are not known.
function added(sums, index) {
  if (sums.length <= index) return null;
  return Math.max(0, sums[index] - (index === 0 ? 0 : sums[index - 1]));
}

// The samples, oldest first. `data`: the attributes of the element that has them. `tasks`: done until the end
// of the sample. `rate`: tasks per second in it. `gc`: percent of the task time in it that went into garbage
// collection. The other fields are bytes per second in it.
export function samples(data) {
  const [began, step] = [Number(data.began), Number(data.step)];
  const executors = numbers(data.executors);
  const tasks = numbers(data.tasks);
  const [taskTime, gcTime] = [numbers(data.taskTime), numbers(data.gcTime)];
  const [shuffleRead, shuffleWrite] = [numbers(data.shuffleRead), numbers(data.shuffleWrite)];
  const [spilledMemory, spilledDisk] = [numbers(data.spilledMemory), numbers(data.spilledDisk)];
  const perSecond = (sums, index) => {
    const more = added(sums, index);
    return more === null ? null : Math.round((more * 1000) / step);
  };
  return tasks.map((done, index) => {
    const worked = added(taskTime, index);
    return {
      time: began + index * step,
      step,
      tasks: done,
      executors: executors[index] ?? 0,
      rate: (added(tasks, index) * 1000) / step,
      gc: worked ? Math.min(100, (100 * added(gcTime, index)) / worked) : null,
      shuffleRead: perSecond(shuffleRead, index),
      shuffleWritten: perSecond(shuffleWrite, index),
      spilledMemory: perSecond(spilledMemory, index),
      spilledDisk: perSecond(spilledDisk, index),
    };
  });
}

// A row for each sample, in seconds, and one without values at `until`, in milliseconds, if that is later.
export function courseRows(found, until = 0) {
  const rows = found.map((sample) => ({ at: sample.time / 1000, record: sample }));
  if (rows.length > 0 && until / 1000 > rows.at(-1).at) rows.push({ at: until / 1000, record: null });
  return rows;
}

export function summary(found) {
  const newest = found.at(-1);
  const most = (field) => Math.max(...found.map((sample) => sample[field] ?? 0));
  return [
    `${count(newest.tasks)} tasks done since ${moment(found[0].time)}, by all attempts`,
    `at most ${count(most("executors"))} ${most("executors") === 1 ? "executor" : "executors"}`,
    ...(most("gc") > 0 ? [`at most ${percent(most("gc"))} of task time in garbage collection`] : []),
    ...(most("spilledDisk") > 0 ? [`at most ${bytes(most("spilledDisk"))} spilled to disks per second`] : []),
    `a sample for each ${seconds(newest.step / 1000)}`,
  ].join(" · ");
}
