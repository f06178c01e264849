// Draws a job's timeline from the table next to it: states as a band, what happened as marks below.
//
// The table stays on the page for readers who cannot use the drawing. `live.js` replaces the table when something has
// changed; the drawing follows. The part that is shown is in the page's address, as `from` and `to`.

import { serverTime } from "./ages.js";
import { lasted, moment } from "./formats.js";
import { groupOf, groupsOf, readMarks } from "./marks.js";
import { bounded, moved, zoomed } from "./spans.js";

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 92; // for the names of the rows
const LEFT_IF_NARROW = 70;
const NARROW = 480;
const RIGHT = 10;
const BAND = { top: 4, height: 30 };
const LANE_HEIGHT = 20;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800]
  .map((seconds) => seconds * 1000);
const SHORTEST_MS = 1000;
const LASTED = 3; // the column of the table
const LABEL_PX = 78;
const REDRAWN_SHARE = 1 / 400; // of the shown time: when so much has passed, the end of what lasts has visibly moved

const plot = document.querySelector("[data-timeline]");
const area = plot?.querySelector("[data-area]");

let read = null; // what the table says
let drawnAt = 0; // the server's time
let shown = null; // the span that is drawn: what a pointer is on
let width = 0;

function element(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function readData() {
  const data = document.getElementById(plot.dataset.timeline);
  const bands = [...data.querySelectorAll("tr[data-band]")]
    .map((row) => ({
      kind: row.dataset.band,
      from: Number(row.dataset.from),
      to: row.dataset.to === "" ? null : Number(row.dataset.to),
      text: [...row.cells].map((cell) => cell.textContent.trim()),
    }))
    .reverse();
  return { bands, marks: readMarks(data) };
}

// What the table says, with the present as the end of what lasts.
function current() {
  read ??= readData();
  const now = serverTime();
  const bands = read.bands.map((band) => (band.to === null ? { ...band, to: now, text: lasting(band, now) } : band));
  return { bands, marks: read.marks };
}

function lasting(band, now) {
  const text = [...band.text];
  text[LASTED] = lasted(now - band.from);
  return text;
}

function whole({ bands }) {
  const from = bands[0].from;
  return { from, to: Math.max(bands.at(-1).to, from + SHORTEST_MS) };
}

function chosen(data) {
  const all = whole(data);
  const query = new URLSearchParams(location.search);
  const from = Number(query.get("from") ?? all.from);
  const to = Number(query.get("to") ?? all.to);
  if (!Number.isFinite(from) || !Number.isFinite(to) || to - from < SHORTEST_MS) return all;
  return { from, to };
}

function choose(span) {
  const address = new URL(location.href);
  for (const name of ["from", "to"]) {
    if (span === null) address.searchParams.delete(name);
    else address.searchParams.set(name, String(Math.round(span[name])));
  }
  history.replaceState(history.state, "", address);
  draw();
  // Said aloud when somebody has chosen it, and not each time that the timeline grows.
  plot.querySelector("[data-said]").textContent = plot.querySelector("[data-span]").textContent;
}

function zoom(factor, around = 0.5) {
  const data = current();
  if (data.bands.length === 0) return;
  choose(zoomed(shown, whole(data), factor, around, SHORTEST_MS));
}

function move(share) {
  const data = current();
  if (data.bands.length === 0) return;
  choose(moved(shown, whole(data), share, SHORTEST_MS));
}

function clock(ms, step) {
  const text = new Date(ms).toISOString();
  if (step >= 86_400_000) return text.slice(5, 10);
  return step < 60_000 ? text.slice(11, 19) : text.slice(11, 16);
}

// Where the time begins, and how wide it is, in pixels.
const leftEdge = () => (width < NARROW ? LEFT_IF_NARROW : LEFT);
const timeWidth = () => width - leftEdge() - RIGHT;

function draw() {
  const data = current();
  plot.hidden = data.bands.length === 0;
  if (plot.hidden) return;
  drawnAt = serverTime();
  shown = chosen(data);
  const { from, to } = shown;
  width = Math.max(260, width || area.clientWidth);
  const left = leftEdge();
  const lanes = [...new Set(groupsOf(data.marks).map((group) => group.lane))];
  const bottom = BAND.top + BAND.height + 8 + lanes.length * LANE_HEIGHT;
  const height = bottom + 22;
  const x = (ms) => left + ((ms - from) / (to - from)) * timeWidth();
  const svg = element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });

  const step = STEPS.find((each) => ((to - from) / each) * LABEL_PX <= width - left) ?? STEPS.at(-1) * 4;
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
    svg.append(element("line", { class: "grid", x1: x(tick), x2: x(tick), y1: BAND.top, y2: bottom }));
    if (x(tick) > left + 18 && x(tick) < width - 26) {
      svg.append(element("text", { class: "axis", x: x(tick), y: bottom + 15, "text-anchor": "middle" }, clock(tick, step)));
    }
  }
  svg.append(element("text", { class: "lane", x: 0, y: BAND.top + 20 }, "State"));
  for (const band of data.bands) {
    const start = Math.max(x(band.from), left);
    const end = Math.min(x(band.to), width - RIGHT);
    if (end < left || start > width - RIGHT) continue;
    const [state, began, ended, took, attempt, why] = band.text;
    const title = `${state}, ${took}\n${began} to ${ended}\nattempt ${attempt}${why === "–" ? "" : `\n${why}`}`;
    const shape = { class: `band ${band.kind}`, x: start, y: BAND.top, width: Math.max(1.5, end - start), height: BAND.height };
    svg.append(element("rect", shape, element("title", {}, title)));
    if (end - start > state.length * 7 + 14) {
      svg.append(element("text", { class: `in-band ${band.kind}`, x: (start + end) / 2, y: BAND.top + 20, "text-anchor": "middle" }, state));
    }
  }
  lanes.forEach((name, number) => {
    const y = BAND.top + BAND.height + 8 + number * LANE_HEIGHT + LANE_HEIGHT / 2;
    svg.append(element("text", { class: "lane", x: 0, y: y + 4 }, name));
    svg.append(element("line", { class: "rail", x1: left, x2: width - RIGHT, y1: y, y2: y }));
    for (const mark of data.marks) {
      if (groupOf(mark)?.lane !== name || mark.at < from || mark.at > to) continue;
      const title = `${moment(mark.at)}\n${mark.kind}\n${mark.message}`;
      const drawn = { class: `mark ${mark.tone}`, d: groupOf(mark).shape, transform: `translate(${x(mark.at)} ${y})` };
      svg.append(element("path", drawn, element("title", {}, title)));
    }
  });
  area.replaceChildren(svg);
  plot.querySelector("[data-span]").textContent = `${moment(from)} – ${moment(to)} UTC`;
}

// Time has passed: draws again if what lasts has grown by enough to be seen.
function grow() {
  if (plot.hidden || !read.bands.some((band) => band.to === null)) return;
  const { from, to } = shown;
  if (drawnAt <= to && serverTime() - drawnAt >= (to - from) * REDRAWN_SHARE) draw();
}

function keyPressed(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const actions = {
    "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(0.5), 0: () => choose(null),
    ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25),
  };
  const action = actions[event.key];
  if (action === undefined) return;
  event.preventDefault();
  action();
}

// Dragging moves the shown part. A wheel with Ctrl zooms; without Ctrl it scrolls the page, as everywhere.
function dragStarted(event) {
  if (event.button !== 0) return;
  const data = current();
  const start = shown;
  const pixels = timeWidth();
  area.setPointerCapture(event.pointerId);
  const dragged = (moved) => {
    const by = ((event.clientX - moved.clientX) / pixels) * (start.to - start.from);
    choose(bounded({ from: start.from + by, to: start.to + by }, whole(data), SHORTEST_MS));
  };
  area.addEventListener("pointermove", dragged);
  const over = () => area.removeEventListener("pointermove", dragged);
  area.addEventListener("pointerup", over, { once: true });
  area.addEventListener("pointercancel", over, { once: true });
}

function wheelTurned(event) {
  if (!event.ctrlKey) return;
  event.preventDefault();
  const box = area.getBoundingClientRect();
  const around = Math.min(1, Math.max(0, (event.clientX - box.left - leftEdge()) / timeWidth()));
  zoom(event.deltaY < 0 ? 1.5 : 1 / 1.5, around);
}

if (plot !== null) {
  for (const button of plot.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => zoom(Number(button.dataset.zoom)));
  for (const button of plot.querySelectorAll("[data-move]")) button.addEventListener("click", () => move(Number(button.dataset.move)));
  plot.querySelector("[data-whole]").addEventListener("click", () => choose(null));
  area.addEventListener("keydown", keyPressed);
  area.addEventListener("pointerdown", dragStarted);
  area.addEventListener("wheel", wheelTurned, { passive: false });
  new ResizeObserver((entries) => {
    const now = entries.at(-1).contentRect.width;
    if (now === 0 || now === width) return;
    width = now;
    draw();
  }).observe(area);
  document.addEventListener("emberkeep:changed", (event) => {
    if (!event.detail.has("timeline-data")) return;
    read = null;
    draw();
  });
  document.addEventListener("emberkeep:refreshed", grow);
  draw();
}
