/** Finds what tests check in Markdown pages: code blocks, headings, links. */

/**
 * Fenced code blocks with their language and the line that they begin in.
 * @param {string} text
 * @returns {{language: string, code: string, line: number}[]}
 */
export function codeBlocks(text) {
  /** @type {{language: string, code: string, line: number}[]} */
  const blocks = [];
  /** @type {{fence: string, language: string, lines: string[], line: number} | undefined} */
  let open;
  for (const [i, line] of text.split('\n').entries()) {
    const [, fence, language = ''] = /^ {0,3}(`{3,})\s*(\S*)\s*$/.exec(line) ?? [];
    if (open === undefined && fence) open = { fence, language, lines: [], line: i + 1 };
    else if (open !== undefined && fence === open.fence && language === '') {
      blocks.push({ language: open.language, code: `${open.lines.join('\n')}\n`, line: open.line });
      open = undefined;
    } else open?.lines.push(line);
  }
  if (open !== undefined) throw new Error(`line ${open.line}: the code block does not end`);
  return blocks;
}

/** The text without code blocks; line numbers do not change. @param {string} text */
function withoutBlocks(text) {
  let inside = false;
  return text
    .split('\n')
    .map((line) => {
      const fence = /^ {0,3}```/.test(line);
      if (fence) inside = !inside;
      return fence || inside ? '' : line;
    })
    .join('\n');
}

/** Anchors of the headings, as GitHub makes them. @param {string} text @returns {Set<string>} */
export function anchors(text) {
  /** @type {Map<string, number>} */
  const seen = new Map();
  /** @type {Set<string>} */
  const all = new Set();
  for (const [, heading] of withoutBlocks(text).matchAll(/^#{1,6}\s+(.+?)\s*#*$/gm)) {
    const plain = heading.replaceAll(/!?\[([^\]]*)\]\([^)]*\)/g, '$1').replaceAll(/[`*]/g, '');
    const base = plain
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\p{M} _-]/gu, '')
      .replaceAll(' ', '-');
    const count = seen.get(base) ?? 0;
    seen.set(base, count + 1);
    all.add(count === 0 ? base : `${base}-${count}`);
  }
  return all;
}

/** Targets of links and images, with their lines. @param {string} text @returns {{target: string, line: number}[]} */
export function links(text) {
  const prose = withoutBlocks(text).replaceAll(/`[^`\n]*`/g, (code) => ' '.repeat(code.length));
  const patterns = [/\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)/g, /^\[[^\]]+\]:\s*(\S+)/gm, /\b(?:src|srcset|href)="([^"]+)"/g];
  return patterns.flatMap((pattern) =>
    [...prose.matchAll(pattern)].map((match) => ({
      target: match[1],
      line: prose.slice(0, match.index).split('\n').length,
    })),
  );
}
