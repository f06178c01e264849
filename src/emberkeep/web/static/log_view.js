// Shows a log and follows it by long polls. Text only, without terminal colours.

const FIRST_BYTES = 256 * 1024;
const KEPT_CHARACTERS = 2 * 1024 * 1024;
const WAIT_SECONDS = 20;
const RETRY_MS = 2000;
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])/g;

const view = document.getElementById("log");
const state = document.getElementById("log-state");
const follow = document.getElementById("follow");
let decoder = new TextDecoder();
let offset = -FIRST_BYTES;

function show(text) {
  const atEnd = view.scrollTop + view.clientHeight >= view.scrollHeight - 40;
  const whole = view.textContent + text.replace(ESCAPES, "");
  view.textContent = whole.length > KEPT_CHARACTERS ? whole.slice(-KEPT_CHARACTERS) : whole;
  if (follow.checked && atEnd) view.scrollTop = view.scrollHeight;
}

async function read(wait) {
  const response = await fetch(`${view.dataset.source}?offset=${offset}&wait=${wait}`, { cache: "no-store" });
  if (!response.ok) throw new Error((await response.json()).detail);
  const start = Number(response.headers.get("X-Log-Offset"));
  const size = Number(response.headers.get("X-Log-Size"));
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (offset > start) {
    decoder = new TextDecoder();
    show("\n── the log was rotated ──\n");
  } else if (offset < 0 && start > 0) {
    show(`── the first ${start} bytes are left out ──\n`);
  }
  offset = start + bytes.length;
  show(decoder.decode(bytes, { stream: true }));
  const complete = response.headers.get("X-Log-Complete") === "true" && offset >= size;
  state.textContent = complete ? `Complete, ${size} bytes.` : `${offset} of ${size} bytes so far.`;
  return complete;
}

async function run() {
  let wait = 0;
  for (;;) {
    try {
      if (await read(wait)) return;
      wait = WAIT_SECONDS;
    } catch (error) {
      state.textContent = `The log cannot be read: ${error.message}`;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
    while (!follow.checked || document.hidden) await new Promise((resolve) => setTimeout(resolve, 300));
  }
}

run();
