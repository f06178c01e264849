// The part of the time that plots show. Buttons, keys and the pointer change it; the page's address keeps it.

import { moment } from "./formats.js";
import { ending, including, moved, zoomed } from "./spans.js";

const ENDS = ["from", "to"]; // after the name of the plots: in the address, in milliseconds
const SHORTEST = 1; // seconds that are shown at least

// Keeps what is shown in the address: values by name; null removes one.
export function note(values) {
  const address = new URL(location.href);
  for (const [name, value] of Object.entries(values)) {
    if (value === null) address.searchParams.delete(name);
    else address.searchParams.set(name, value);
  }
  history.replaceState(history.state, "", address);
}

function inAddress(names) {
  const [from, to] = names.map((name) => Number(new URLSearchParams(location.search).get(name) ?? NaN));
  return to > from ? { from: from / 1000, to: to / 1000 } : null;
}

export class ShownSpan {
  #names; // in the address
  #span; // {from, to} in seconds; null: all of it, also as it grows
  #whole = null;
  #tools;
  #cursor;
  #onChange;

  // `tools` has the buttons, and says what is shown. `cursor` returns where the cursor is, in seconds, or null.
  // `onChange` is called when a button or a key has changed the span. `name`: of the plots in the address.
  constructor(tools, cursor, onChange, name) {
    this.#names = ENDS.map((end) => `${name}-${end}`);
    this.#span = inAddress(this.#names);
    this.#tools = tools;
    this.#cursor = cursor;
    this.#onChange = onChange;
    tools.addEventListener("click", (click) => this.#onButton(click.target.closest("button")));
  }

  get chosen() {
    return this.#span;
  }

  // What is shown: the whole time unless a part is chosen.
  get shown() {
    return this.#span ?? this.#whole;
  }

  get text() {
    return `${moment(this.shown.from * 1000)} – ${moment(this.shown.to * 1000)} UTC`;
  }

  // The time of all values; null if there are none.
  follow(whole) {
    this.#whole = whole;
    this.#tools.hidden = whole === null;
    if (whole !== null) this.#say();
  }

  // The pointer has chosen a part, or all of it.
  take(span) {
    if (span?.from === this.#span?.from && span?.to === this.#span?.to) return;
    this.#span = span;
    const values = span === null ? [null, null] : [span.from, span.to].map((seconds) => String(Math.round(seconds * 1000)));
    note(Object.fromEntries(this.#names.map((name, index) => [name, values[index]])));
    this.#say();
  }

  // Moves to a moment if it is not shown.
  include(at) {
    this.#change(including(this.#span, this.#whole, at, SHORTEST));
  }

  // Returns whether the key means something here.
  onKey(key) {
    const factor = { "+": 2, "=": 2, "-": 0.5 }[key];
    if (factor !== undefined) this.#zoomBy(factor);
    else if (key === "0") this.#change(null);
    return factor !== undefined || key === "0";
  }

  #onButton(button) {
    if (button === null || this.#whole === null) return;
    const { zoom, move, newest } = button.dataset;
    if (zoom !== undefined) this.#zoomBy(Number(zoom));
    else if (move !== undefined) this.#change(moved(this.shown, this.#whole, Number(move), SHORTEST));
    else if (newest !== undefined) this.#change(ending(this.#whole, Number(newest)));
    else this.#change(null);
  }

  // Around the cursor, or towards the newest values.
  #zoomBy(factor) {
    const [at, { from, to }] = [this.#cursor(), this.shown];
    const around = at === null ? 1 : Math.min(1, Math.max(0, (at - from) / (to - from)));
    this.#change(zoomed(this.shown, this.#whole, factor, around, SHORTEST));
  }

  #change(span) {
    if (span === this.#span) return;
    this.take(span);
    this.#onChange();
  }

  #say() {
    const place = this.#tools.querySelector("[data-span]");
    if (this.#whole !== null && place.textContent !== this.text) place.textContent = this.text;
  }
}
