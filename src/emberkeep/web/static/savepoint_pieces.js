// Divides the check of a savepoint into requests that end soon. Nothing here touches the page.

const MOST_FILES = 500;
const MOST_BYTES = 64 * 1024 ** 2; // or one file that is larger

export function pieces(files) {
  const found = [];
  for (const [index, file] of files.entries()) {
    const last = found.at(-1);
    if (last === undefined || last.count === MOST_FILES || last.size + file.size > MOST_BYTES) {
      found.push({ first: index, count: 1, size: file.size });
    } else {
      last.count += 1;
      last.size += file.size;
    }
  }
  return found;
}
