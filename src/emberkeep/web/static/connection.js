// Whether the JobManager answers: the notice says why it does not, and the tab's title and icon say so, too.

const LOST_TITLE = "No connection · ";
const LOST_ICON = "/static/icon-lost.svg";
const notice = document.getElementById("notice");
const icon = document.getElementById("icon");

let lostIcon = null;
let ownIcon = icon.getAttribute("href"); // what the page itself says

// The icon is read beforehand, because it is shown when the server is out of reach.
export async function keepLostIcon() {
  try {
    const response = await fetch(LOST_ICON);
    if (response.ok) lostIcon = `data:image/svg+xml,${encodeURIComponent(await response.text())}`;
  } catch {
    // the title says it, too
  }
}

// What is shown may be out of date. `addresses`: of pages that may answer.
export function lost(text, addresses = []) {
  notice.replaceChildren(text, ...addresses.flatMap((address) => [" ", link(address)]));
  notice.hidden = false;
  if (!isLost()) document.title = LOST_TITLE + document.title;
  if (lostIcon !== null) show(lostIcon);
}

// The JobManager has answered.
export function answered() {
  notice.hidden = true;
  if (isLost()) document.title = document.title.slice(LOST_TITLE.length);
  show(ownIcon);
}

// Sets what the page itself says.
export function setIcon(address) {
  ownIcon = address;
  if (!isLost()) show(address);
}

function isLost() {
  return document.title.startsWith(LOST_TITLE);
}

function link(address) {
  const element = document.createElement("a");
  [element.href, element.textContent] = [address, `Try ${new URL(address).host}`];
  return element;
}

function show(address) {
  if (icon.getAttribute("href") !== address) icon.setAttribute("href", address);
}
