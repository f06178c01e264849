// Marks in plots: lines with a shape on top, their legend, and the text at the cursor.

import { moment } from "./formats.js";
import { groupOf, groupsOf, markText, near } from "./marks.js";

const SVG = "http://www.w3.org/2000/svg";
const ABOVE = 9; // pixels from a shape's centre down to the plot
const REACH = 9; // pixels from the cursor within which a mark is described
const MOST_LINES = 4;

export const MARK_SPACE = 2 * ABOVE;

const paths = new Map(); // by group

function pathOf(mark) {
  const group = groupOf(mark);
  return paths.get(group) ?? paths.set(group, new Path2D(group.shape)).get(group);
}

// `colour` returns the colour of a custom property. What has failed is drawn over the rest.
export function drawMarks(chart, marks, colour) {
  const { ctx, bbox } = chart;
  const ratio = devicePixelRatio;
  const failedLast = [...marks].sort((one, other) => (one.tone === "failed") - (other.tone === "failed"));
  const drawn = new Set();
  for (const mark of failedLast) {
    const x = chart.valToPos(mark.at / 1000, "x", true);
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) continue;
    const place = `${Math.round(x)} ${mark.tone} ${groupOf(mark).legend}`; // one that is hidden by its like costs the same
    if (drawn.has(place)) continue;
    drawn.add(place);
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour(`--${mark.tone}`);
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.translate(x, bbox.top - ABOVE * ratio);
    ctx.scale(ratio, ratio);
    ctx.fill(pathOf(mark));
    ctx.restore();
  }
}

export function marksAtCursor(chart, marks, at) {
  const pixels = chart.over.clientWidth;
  if (at === null || pixels === 0) return [];
  return near(marks, at, ((chart.scales.x.max - chart.scales.x.min) / pixels) * REACH);
}

// `name`: of the record at the cursor; "" if it has none.
export function cursorLines(name, at, marks) {
  const time = moment(at * 1000).slice(11);
  const lines = [name ? `${time} · ${name}` : time, ...marks.slice(0, MOST_LINES).map(markText)];
  if (marks.length > MOST_LINES) lines.push(`and ${marks.length - MOST_LINES} more: see the table`);
  return lines;
}

// Explains the shapes of the groups that are there.
export function fillLegend(place, marks) {
  const groups = groupsOf(marks);
  const key = groups.map((group) => group.legend).join();
  place.hidden = groups.length === 0;
  if (place.dataset.groups === key) return;
  place.dataset.groups = key;
  place.replaceChildren(
    ...groups.map((group) => {
      const entry = document.createElement("li");
      const drawing = document.createElementNS(SVG, "svg");
      for (const [name, value] of [["viewBox", "-7 -7 14 14"], ["width", "14"], ["height", "14"], ["aria-hidden", "true"]]) {
        drawing.setAttribute(name, value);
      }
      drawing.append(document.createElementNS(SVG, "path"));
      drawing.firstChild.setAttribute("d", group.shape);
      entry.append(drawing, ` ${group.legend}`);
      return entry;
    }),
  );
}

// The text at the cursor, in the plot that the pointer is over, or in the first one for those who use the keyboard.
export class CursorText {
  #box = document.createElement("div");

  constructor() {
    this.#box.className = "plot-tip";
    this.#box.setAttribute("aria-hidden", "true"); // keys announce the same text
  }

  show(chart, at, lines) {
    this.#box.replaceChildren(
      ...lines.map((line) => {
        const made = document.createElement("div");
        made.textContent = line;
        return made;
      }),
    );
    const left = chart.valToPos(at, "x");
    const isRight = left > chart.over.clientWidth / 2;
    this.#box.style.left = isRight ? "auto" : `${left + 10}px`;
    this.#box.style.right = isRight ? `${chart.over.clientWidth - left + 10}px` : "auto";
    this.#box.style.maxWidth = `${Math.max(150, Math.min(420, (isRight ? left : chart.over.clientWidth - left) - 20))}px`;
    chart.over.append(this.#box);
  }

  hide() {
    this.#box.remove();
  }
}
