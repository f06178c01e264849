const PATIENCE_MS = 60000; // a connection that is cut off says nothing; a list of logs asks every task manager

// Asks the JobManager as fetch does. Browsers word it differently, and briefly, if there is no connection or no answer. A
// question without a signal of its own has a time limit, also for the reply's body. A change has none: it may be made.
export async function reach(address, options = {}) {
  const isQuestion = (options.method ?? "GET") === "GET";
  const signal = options.signal ?? (isQuestion ? AbortSignal.timeout(PATIENCE_MS) : undefined);
  try {
    return await fetch(address, { ...options, signal });
  } catch (error) {
    if (error.name !== "TypeError") throw worded(error); // an end of the wait, for example
    throw new Error("the JobManager cannot be reached", { cause: error });
  }
}

// The error, in words of ours if a time limit has passed.
export function worded(error) {
  if (error.name !== "TimeoutError") return error;
  return Object.assign(new Error("the JobManager has not answered in time", { cause: error }), { name: error.name });
}
