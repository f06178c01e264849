// The title of the page: the state, which the server says, and the name of what is shown, which a script may set.

// Returns the title that this page gets from a fresh copy of it.
export function titleOf(fresh) {
  const { name } = document.documentElement.dataset;
  if (name === undefined) return fresh.title;
  return [fresh.documentElement.dataset.state, name, "Emberkeep"].filter(Boolean).join(" · ");
}

// Names what the page shows.
export function setName(name) {
  document.documentElement.dataset.name = name;
  document.title = titleOf(document);
}
