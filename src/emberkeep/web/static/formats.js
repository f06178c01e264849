// Turns numbers and times into text. Nothing here touches the page.

export function count(value) {
  if (value === null || value === undefined) return "–";
  const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : 1;
  return value.toFixed(digits).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${count(value)} %`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  while (value >= 1024 && step < units.length - 1) {
    value /= 1024;
    step += 1;
  }
  return `${step === 0 ? value : value.toFixed(1).replace(".0", "")} ${units[step]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 120) return `${value.toFixed(1)} s`;
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => value >= size);
  const [size, unit] = parts[first];
  const [next, small] = parts[first + 1] ?? [1, "s"];
  const rest = Math.floor((value % size) / next);
  return rest > 0 && next < size ? `${Math.floor(value / size)} ${unit} ${rest} ${small}` : `${Math.floor(value / size)} ${unit}`;
}

// A duration in its two largest units, as the server writes it.
export function lasted(milliseconds) {
  if (milliseconds < 1000) return `${Math.max(0, Math.floor(milliseconds))} ms`;
  let rest = Math.floor(milliseconds / 1000);
  const parts = [];
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    const amount = Math.floor(rest / size);
    rest %= size;
    if (amount > 0) parts.push(`${amount} ${unit}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

export function moment(milliseconds) {
  return new Date(milliseconds).toISOString().slice(0, 19).replace("T", " ");
}
