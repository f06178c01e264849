// Draws plots of numbers over time, with one cursor over all of them. Colours come from the style sheet.

import uPlot from "./uplot.js";
import { stops } from "./marks.js";
import { CursorText, MARK_SPACE, cursorLines, drawMarks, fillLegend, marksAtCursor } from "./plot_marks.js";
import { bytes } from "./formats.js";
import { ShownSpan } from "./plot_zoom.js";
import { column, stacked } from "./stream_series.js";

const HEIGHT = 168;
const COLOURS = 8; // --plot-1 to --plot-8
const AXIS_WIDTH = 72; // the same in all plots, so that their time axes are in line
const NARROW = 480; // below this width, as on phones, plots get more of it and their axes less
const NARROW_AXIS = 54;
const TIME_SPACE = 75; // between two times, so that they do not touch
const POWERS_OF_TWO = Array.from({ length: 51 }, (_, power) => 2 ** power); // steps between the ticks of bytes

function element(tag, className, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

export class Plots {
  #place;
  #legend;
  #spoken;
  #cursorText = new CursorText();
  #plots;
  #noun;
  #label;
  #records = [];
  #marks = [];
  #found = [];
  #drawn = new Map();
  #sync;
  #at = null; // where the cursor is, in seconds
  #time; // the part of it that is shown
  #visible = new Set(); // figures in or near the window; the others get new numbers when they come into it
  #watch = new IntersectionObserver((entries) => this.#onMoved(entries), { rootMargin: "200px" });

  // `legend` gets the shapes of the marks. `spoken` gets what is at the cursor when a key has moved it. `plots`: each has
  // an id, a title, a text for the numbers of its axes, and its series. `noun`: what the records are; `label`: what one is
  // called at the cursor. `tools` has buttons that change the part of the time that is shown; the page's address keeps it
  // by the name `address`.
  constructor({ place, legend, tools, spoken, name, plots, noun, label, address = "plot" }) {
    this.#time = new ShownSpan(tools, () => this.#at, () => this.#scale(), address);
    this.#sync = uPlot.sync(name);
    this.#plots = plots;
    this.#noun = noun;
    this.#label = label;
    this.#place = place;
    this.#legend = legend;
    this.#spoken = spoken;
    new ResizeObserver(() => this.#resize()).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#redraw());
    place.addEventListener("keydown", (key) => this.#onKey(key));
  }

  // `found`: a row for each record, and rows without a record where lines are to end.
  show(records, found, marks) {
    this.#records = records;
    this.#marks = marks;
    this.#found = found;
    fillLegend(this.#legend, this.#marks);
    this.#time.follow(found.length < 2 ? null : { from: found[0].at, to: found.at(-1).at });
    for (const plot of this.#plots) this.#show(plot);
  }

  clear() {
    this.#time.take(null);
    this.#removeAll();
  }

  #removeAll() {
    this.#at = null;
    for (const id of [...this.#drawn.keys()]) this.#remove(id);
  }

  #show(plot) {
    const series = plot.series(this.#records);
    if (series.length === 0) {
      if (this.#drawn.has(plot.id)) this.#remove(plot.id);
      return;
    }
    const drawn = this.#drawn.get(plot.id);
    if (drawn === undefined && !this.#isKnown(plot, series)) return;
    const labels = series.map((one) => one.label).join("\n");
    if (drawn !== undefined && drawn.labels !== labels) this.#remove(plot.id);
    const current = this.#drawn.get(plot.id) ?? this.#draw(plot, series, labels);
    current.series = series;
    current.isStale = true;
    if (drawn === undefined || this.#visible.has(current.figure)) this.#fill(current); // once, for those who print the page
    this.#describe(current);
  }

  #isKnown(plot, series) {
    const isShown = (value) => value !== null && (value !== 0 || !plot.onlyIfUsed);
    return series.some((one) => this.#found.some((row) => row.record !== null && isShown(one.value(row.record))));
  }

  // Gives the chart the numbers that it does not show yet. They are read here, so a chart that nobody sees costs nothing.
  #fill(drawn) {
    if (!drawn.isStale) return;
    drawn.isStale = false;
    const columns = drawn.series.map((one) => column(this.#found, one.value));
    const lines = drawn.plot.stacked ? stacked(columns).reverse() : columns;
    const span = this.#time.chosen;
    drawn.chart.setData([this.#found.map((row) => row.at), ...lines], span === null);
    if (span !== null) drawn.chart.setScale("x", { min: span.from, max: span.to });
  }

  #onMoved(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this.#visible.add(target);
      else this.#visible.delete(target);
    }
    for (const drawn of this.#drawn.values()) if (this.#visible.has(drawn.figure)) this.#fill(drawn);
  }

  #draw(plot, series, labels) {
    const figure = element("figure", "plot");
    figure.dataset.plot = plot.id;
    const caption = element("figcaption", "");
    caption.append(element("strong", "", plot.title));
    const values = series.map((one, index) => {
      const entry = element("span", "plot-entry");
      const value = element("b", "");
      entry.append(element("i", `swatch swatch-${(index % COLOURS) + 1}`), `${one.label} `, value);
      caption.append(entry);
      return value;
    });
    const canvas = element("div", "");
    canvas.setAttribute("role", "img");
    figure.append(caption, canvas);
    const following = this.#plots.slice(this.#plots.indexOf(plot) + 1).map((one) => this.#drawn.get(one.id)?.figure).find(Boolean);
    this.#place.insertBefore(figure, following ?? null);
    const chart = new uPlot(this.#options(plot, series), [[], ...series.map(() => [])], canvas);
    const drawn = { plot, series, labels, figure, canvas, values, chart, isStale: true };
    this.#drawn.set(plot.id, drawn);
    this.#watch.observe(figure);
    return drawn;
  }

  #remove(id) {
    const drawn = this.#drawn.get(id);
    this.#watch.unobserve(drawn.figure);
    this.#visible.delete(drawn.figure);
    drawn.chart.destroy();
    drawn.figure.remove();
    this.#drawn.delete(id);
  }

  #redraw() {
    this.#removeAll();
    this.show(this.#records, this.#found, this.#marks);
  }

  #options(plot, series) {
    const colour = colours();
    const line = (one, index) => {
      const stroke = colour(`--plot-${(index % COLOURS) + 1}`);
      return {
        label: one.label,
        scale: one.right ? "right" : "left",
        stroke,
        width: plot.stacked ? 0 : 1.75,
        paths: plot.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
        fill: plot.stacked ? stroke : undefined,
        points: { show: plot.stacked || plot.stepped ? false : undefined, size: 4 },
      };
    };
    const lines = series.map(line);
    const axis = (scale, side, text) => ({
      scale,
      side,
      size: (chart) => (chart.width >= NARROW ? AXIS_WIDTH : text === none ? 10 : NARROW_AXIS),
      stroke: colour("--soft"),
      grid: { show: side === 3, stroke: colour("--line"), width: 1 },
      ticks: { show: false },
      values: (_, splits) => splits.map((split) => (split === null ? "" : text(split))),
      ...(text === bytes ? { incrs: POWERS_OF_TWO } : {}),
    });
    return {
      width: this.#width(),
      height: HEIGHT,
      padding: [MARK_SPACE, null, null, null],
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      legend: { show: false },
      cursor: {
        sync: { key: this.#sync.key, scales: ["x", null] },
        drag: { x: true, y: false },
        points: { show: !plot.stacked },
        y: false,
      },
      hooks: {
        draw: [(chart) => drawMarks(chart, this.#marks, colour)],
        setCursor: [(chart) => this.#onCursor(chart)],
        setScale: [(chart, scale) => scale === "x" && this.#onScale(chart)],
      },
      scales: {
        left: { range: (_, low, high) => range(low, high, plot.top?.()) },
        right: { range: (_, low, high) => range(low, high) },
      },
      series: [{}, ...(plot.stacked ? lines.reverse() : lines)],
      axes: [
        { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, size: 30, space: TIME_SPACE, values: times },
        axis("left", 3, plot.left),
        plot.right === undefined ? axis("left", 1, none) : axis("right", 1, plot.right),
      ],
    };
  }

  // The plot that the pointer is over has been zoomed, and the others with it.
  #onScale(chart) {
    const [times, { min, max }] = [chart.data[0], chart.scales.x];
    if (times.length < 2 || (min ?? null) === null || !chart.over.matches(":hover")) return;
    this.#time.take(min > times[0] || max < times.at(-1) ? { from: min, to: max } : null);
  }

  #scale() {
    const { from, to } = this.#time.shown;
    for (const { chart } of this.#drawn.values()) chart.batch(() => chart.setScale("x", { min: from, max: to })); // at once
  }

  #width() {
    return Math.max(240, this.#place.clientWidth - 26);
  }

  #resize() {
    for (const { chart } of this.#drawn.values()) {
      if (chart.width !== this.#width()) chart.setSize({ width: this.#width(), height: HEIGHT });
    }
  }

  #onCursor(chart) {
    const left = chart.cursor.left ?? -1;
    const isPointed = chart.over.matches(":hover");
    if (left >= 0 ? !isPointed : this.#at === null) return; // the plot that the pointer is over decides for all
    this.#at = left < 0 ? null : chart.posToVal(left, "x");
    for (const drawn of this.#drawn.values()) this.#describe(drawn);
    if (this.#at === null) this.#cursorText.hide();
    else this.#cursorText.show(chart, this.#at, this.#linesAtCursor(chart));
  }

  #linesAtCursor(chart) {
    return cursorLines(this.#nameAtCursor(), this.#at, marksAtCursor(chart, this.#marks, this.#at));
  }

  #nameAtCursor() {
    const record = this.#found[this.#index()]?.record ?? null;
    return record === null ? "" : this.#label(record);
  }

  // The row at the cursor, or the newest one that has values.
  #index() {
    return this.#at === null ? this.#found.findLastIndex((row) => row.record !== null) : nearest(this.#found, this.#at);
  }

  #describe(drawn) {
    const { plot, series, values, canvas } = drawn;
    const record = this.#found[this.#index()]?.record ?? null;
    const texts = series.map((one) => (one.right ? plot.right : plot.left)(record === null ? null : one.value(record)));
    for (const [number, text] of texts.entries()) values[number].textContent = text;
    const there = series.map((one, number) => `${one.label} ${texts[number]}`).join(", ");
    const size = `${this.#records.length} ${this.#noun}, ${this.#marks.length} events`;
    canvas.setAttribute("aria-label", `${plot.title}, ${size}: ${there}. The table below has the numbers.`);
  }

  // Arrow keys move the cursor from record to record, and to what has happened in between; others zoom.
  #onKey(key) {
    const [first] = this.#drawn.values();
    if (first === undefined || this.#found.length < 2 || key.ctrlKey || key.altKey || key.metaKey) return;
    if (this.#time.onKey(key.key)) {
      key.preventDefault();
      this.#spoken.textContent = this.#time.text;
    }
    if (!["ArrowLeft", "ArrowRight"].includes(key.key)) return;
    key.preventDefault();
    const moments = stops(this.#found, this.#marks);
    const from = this.#at ?? Infinity;
    const at = key.key === "ArrowLeft" ? moments.findLast((one) => one < from - 1e-4) : moments.find((one) => one > from + 1e-4);
    if (at === undefined) return;
    this.#time.include(at);
    for (const { chart } of this.#drawn.values()) chart.setCursor({ left: chart.valToPos(at, "x"), top: 10 }, false);
    this.#at = at;
    for (const drawn of this.#drawn.values()) this.#describe(drawn);
    const lines = this.#linesAtCursor(first.chart);
    this.#cursorText.show(first.chart, at, lines);
    this.#spoken.textContent = lines.join(". ");
  }
}

function none() {
  return "";
}

// Returns the colour of a custom property. The style sheet is asked once for each.
function colours() {
  const style = getComputedStyle(document.documentElement);
  const known = new Map();
  return (name) => known.get(name) ?? known.set(name, style.getPropertyValue(name).trim()).get(name);
}

// The index of the row that is closest to a time.
function nearest(found, at) {
  const after = found.findIndex((row) => row.at >= at);
  if (after < 0) return found.length - 1;
  return after > 0 && at - found[after - 1].at < found[after].at - at ? after - 1 : after;
}

// From zero to a little more than the highest value, or to `top`, the most that there can be, if that is known.
function range(low, high, top = 0) {
  const most = high > 0 ? high * 1.08 : 1;
  return [Math.min(0, low ?? 0), top > 0 ? Math.max(top, high ?? 0) : most];
}

function times(_, splits, __, ___, step) {
  return splits.map((split) => {
    const text = new Date(split * 1000).toISOString();
    return step >= 86400 ? text.slice(5, 10) : step >= 60 ? text.slice(11, 16) : text.slice(11, 19);
  });
}
