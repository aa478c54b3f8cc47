/** Charts as SVG files for Markdown pages, one for light and one for dark backgrounds. */

/** @typedef {'light' | 'dark'} Theme */

/** At least 4.5:1 for text and 3:1 for bars with GitHub's backgrounds. @type {Record<Theme, {text: string, muted: string, bars: string[], line: string}>} */
const COLOURS = {
  light: { text: '#1f2328', muted: '#59636e', bars: ['#2563eb', '#8c959f'], line: '#d1d9e0' },
  dark: { text: '#f0f6fc', muted: '#9198a1', bars: ['#7aa7ff', '#6e7681'], line: '#3d444d' },
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

/**
 * Figures over runs: a row for each with its line, each on a scale of its own from 0.
 * @param {{title: string, runs: string[], rows: {label: string, unit: string, values: (number | undefined)[]}[]}} chart
 *   `values` has one entry for each of `runs`, undefined where the run did not measure it
 * @param {Theme} theme
 */
export function historySvg({ title, runs, rows }, theme) {
  const { text, muted, bars, line } = COLOURS[theme];
  const [left, right, rowHeight] = [300, WIDTH - 120, 44];
  const x = (/** @type {number} */ i) => (runs.length === 1 ? left : left + (i * (right - left)) / (runs.length - 1));
  const parts = [`<text x="0" y="18" fill="${text}" font-size="15" font-weight="600">${escapeXml(title)}</text>`];
  let y = 34;
  for (const { label, unit, values } of rows) {
    const base = y + rowHeight - 8;
    const most = Math.max(...values.map((value) => value ?? 0)) || 1;
    const points = values.flatMap((value, i) =>
      value === undefined ? [] : [{ x: x(i), y: base - (value / most) * (rowHeight - 16), value }],
    );
    const last = points[points.length - 1];
    parts.push(
      `<text x="0" y="${base - 8}" fill="${text}">${escapeXml(label)}</text>`,
      `<line x1="${left}" y1="${base}" x2="${right}" y2="${base}" stroke="${line}"/>`,
      `<polyline points="${points.map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`).join(' ')}" fill="none" stroke="${bars[0]}" stroke-width="2"/>`,
      ...points.map(
        (p) =>
          `<circle cx="${p.x.toFixed(1)}" cy="${p.y.toFixed(1)}" r="3" fill="${bars[0]}"><title>${formatFigure(p.value)} ${escapeXml(unit)}</title></circle>`,
      ),
      `<text x="${left - 10}" y="${base - 8}" text-anchor="end" fill="${muted}">${formatFigure(points[0].value)}</text>`,
      `<text x="${right + 10}" y="${base - 8}" fill="${text}">${formatFigure(last.value)} ${escapeXml(unit)}</text>`,
    );
    y += rowHeight;
  }
  y += 16;
  runs.forEach((run, i) => {
    const anchor = i === 0 ? 'start' : i === runs.length - 1 ? 'end' : 'middle';
    // In between there is room for few.
    if (anchor !== 'middle' || runs.length <= 4)
      parts.push(`<text x="${x(i)}" y="${y}" text-anchor="${anchor}" fill="${muted}" font-size="12">${escapeXml(run)}</text>`);
  });
  return svg(y + 12, title, parts);
}
