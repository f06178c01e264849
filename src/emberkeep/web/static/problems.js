// What the REST API says has gone wrong, as an error. `status`: the reply's.
export async function problemOf(response) {
  const { detail, hint } = await response.json();
  return Object.assign(new Error(hint ? `${detail} (${hint})` : detail), { status: response.status });
}
