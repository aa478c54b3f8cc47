// Puts a made table in its place in a page.

/**
 * The page with another text between two marks.
 * @param {string} page @param {readonly [begin: string, end: string]} marks comments, each on a line of its own @param {string} text
 * @throws {Error} for a page without the marks
 */
export function between(page, [begin, end], text) {
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`the page has no place for the table: between ${begin} and ${end}`);
  return `${page.slice(0, from)}${begin}\n\n${text}\n\n${page.slice(to)}`;
}
