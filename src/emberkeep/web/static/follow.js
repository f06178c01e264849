// Takes an open page, with its session, to the JobManager that leads when the one that sent it does not any more.
//
// The leader's replies carry a pass for this session and the addresses of the other JobManagers. A pass is good for a few
// minutes, once, and only at the next leader.

const PATH = "/login/continue";
const PATIENCE_MS = 3000;

let pass = null;
let epoch = "";
let others = [];

// Who logs out in one tab has logged out in all: their passes are not for the next leader.
const tabs = new BroadcastChannel("emberkeep-session");
tabs.addEventListener("message", () => {
  pass = null;
});
document.querySelector('form[action="/logout"]')?.addEventListener("submit", () => {
  pass = null;
  tabs.postMessage("logout");
});

// Keeps what a reply says about the others.
export function heard(response) {
  pass = response.headers.get("Emberkeep-Session-Pass") ?? pass;
  epoch = response.headers.get("Emberkeep-Leader-Epoch") ?? epoch;
  const listed = response.headers.get("Emberkeep-Job-Managers");
  if (listed !== null) others = listed.split(", ").filter((each) => each !== "");
}

// Where this page is at each of the others, for people whose browser cannot be taken there.
export function elsewhere() {
  return others.map((origin) => `${origin}${location.pathname}${location.search}`);
}

// Goes to the new leader, if there is one. `isBack`: this page's own JobManager answers, and does not know the session.
export async function followLeader(isBack) {
  if (pass === null) return;
  const asked = isBack ? [location.origin, ...others] : others;
  for (const origin of asked) if (await leads(origin)) return go(origin);
}

async function leads(origin) {
  try {
    const response = await fetch(`${origin}${PATH}?after=${epoch}`, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    return response.status === 204;
  } catch {
    return false; // it has ended, stands by, or has a certificate that this browser does not know
  }
}

function go(origin) {
  // The new leader checks which server's page sends the pass, and browsers tell that only with the referrer.
  const policy = document.createElement("meta");
  [policy.name, policy.content] = ["referrer", "origin"];
  document.head.append(policy);
  const form = document.createElement("form");
  [form.method, form.action, form.hidden] = ["post", `${origin}${PATH}`, true];
  for (const [name, value] of [["pass", pass], ["page", `${location.pathname}${location.search}`]]) {
    const field = document.createElement("input");
    [field.type, field.name, field.value] = ["hidden", name, value];
    form.append(field);
  }
  pass = null; // it is used up
  document.body.append(form);
  form.submit();
}
