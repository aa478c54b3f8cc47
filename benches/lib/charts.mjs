/** Draws charts as SVG files for Markdown pages, one for light and one for dark backgrounds. */

/** @typedef {'light' | 'dark'} Theme */

/** At least 4.5:1 for text and 3:1 for bars with GitHub's backgrounds. @type {Record<Theme, {text: string, muted: string, bars: string[]}>} */
const COLOURS = {
  light: { text: '#1f2328', muted: '#59636e', bars: ['#2563eb', '#8c959f'] },
  dark: { text: '#f0f6fc', muted: '#9198a1', bars: ['#7aa7ff', '#6e7681'] },
};
const FONT = 'font-family="-apple-system,Segoe UI,Helvetica,Arial,sans-serif"';
const WIDTH = 760;

/** @param {string} text */
const escapeXml = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

/** @param {number} height @param {string} title @param {string[]} parts */
function svg(height, title, parts) {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" ${FONT} font-size="13">
<title>${escapeXml(title)}</title>
${parts.join('\n')}
</svg>
`;
}

/** A number as the pages print it. @param {number} value @param {string} [unit] */
export function formatFigure(value, unit = '') {
  const digits = Math.abs(value) >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: unit === 'nats' ? 7 : 4 };
  return value.toLocaleString('en-US', digits);
}

/**
 * Horizontal bars, one below the other; ours in colour, others grey.
 * @param {{title: string, unit: string, bars: {label: string, value: number, ours: boolean, gap?: boolean}[], notes: string[]}} chart
 *   `gap`: whether a group begins with this bar; `notes`: small lines below the bars
 * @param {Theme} theme
 */
export function barsSvg({ title, unit, bars, notes }, theme) {
  const { text, muted, bars: fills } = COLOURS[theme];
  const [left, room] = [260, WIDTH - 260 - 110];
  const most = Math.max(...bars.map(({ value }) => value));
  const parts = [`<text x="0" y="18" fill="${text}" font-size="15" font-weight="600">${escapeXml(title)}</text>`];
  let y = 34;
  for (const { label, value, ours, gap } of bars) {
    if (gap) y += 12;
    const width = Math.max(1, (value / most) * room).toFixed(1);
    parts.push(
      `<text x="${left - 10}" y="${y + 16}" text-anchor="end" fill="${text}">${escapeXml(label)}</text>`,
      `<rect x="${left}" y="${y + 2}" width="${width}" height="20" rx="3" fill="${fills[ours ? 0 : 1]}"/>`,
      `<text x="${(left + Number(width) + 8).toFixed(1)}" y="${y + 16}" fill="${text}"${ours ? ' font-weight="600"' : ''}>${formatFigure(value)} ${escapeXml(unit)}</text>`,
    );
    y += 28;
  }
  for (const note of notes) parts.push(`<text x="0" y="${(y += 18)}" fill="${muted}" font-size="12">${escapeXml(note)}</text>`);
  return svg(y + 10, title, parts);
}
