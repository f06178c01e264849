import { worded } from "./reach.js";

// The JSON of the REST API's reply. A proxy on the way may answer in its own words, in HTML for example.
export async function bodyOf(response) {
  const text = await response.text().catch((error) => {
    throw worded(error);
  });
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`HTTP status ${response.status}, and no reply of the JobManager`);
  }
}

// What the REST API says has gone wrong, as an error. `status`: that of the API's reply.
export async function problemOf(response) {
  const { detail, hint } = await bodyOf(response);
  return Object.assign(new Error(hint ? `${detail} (${hint})` : detail), { status: response.status });
}
