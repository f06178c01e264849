// The part of the time that is shown, {from, to} in any unit; null is all of it. Nothing here touches the page.

// Keeps a span within `all`, and not shorter than `shortest`.
export function bounded(span, all, shortest) {
  const length = Math.max(shortest, span.to - span.from);
  if (length >= all.to - all.from) return null;
  const from = Math.min(Math.max(span.from, all.from), all.to - length);
  return { from, to: from + length };
}

// The newest part of `all`.
export function ending(all, length) {
  return bounded({ from: all.to - length, to: all.to }, all, length);
}

// `around`: the share of the span that lies before the point that stays where it is.
export function zoomed(span, all, factor, around, shortest) {
  const length = (span.to - span.from) / factor;
  const from = span.from + (span.to - span.from - length) * around;
  return bounded({ from, to: from + length }, all, shortest);
}

// `share`: of the span; negative for earlier.
export function moved(span, all, share, shortest) {
  const by = (span.to - span.from) * share;
  return bounded({ from: span.from + by, to: span.to + by }, all, shortest);
}

// Moves a span so that it has a moment in its middle, if the moment is outside.
export function including(span, all, at, shortest) {
  if (span === null || (at >= span.from && at <= span.to)) return span;
  const half = (span.to - span.from) / 2;
  return bounded({ from: at - half, to: at + half }, all, shortest);
}
