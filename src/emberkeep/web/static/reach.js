// Asks the JobManager as fetch does. Browsers word it differently, and briefly, if there is no connection.
export async function reach(address, options) {
  try {
    return await fetch(address, options);
  } catch (error) {
    if (error.name !== "TypeError") throw error; // an end of the wait, for example
    throw new Error("the JobManager cannot be reached", { cause: error });
  }
}
