// Fills the body of a table with rows. Everything becomes text, never markup.

// `lines`: for each row its cells, each as label, text and class.
export function fill(place, lines) {
  place.replaceChildren(
    ...lines.map((cells) => {
      const row = document.createElement("tr");
      for (const [label, text, kind] of cells) {
        const cell = row.insertCell();
        cell.dataset.label = label;
        cell.textContent = text;
        cell.className = kind ?? "num";
      }
      return row;
    }),
  );
}
