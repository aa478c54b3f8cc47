/**
 * Writes reports as one self-contained HTML page with tables and inline SVG charts. The page is light or dark by the reader's preference,
 * printable, and has no scripts and nothing from the network.
 *
 * `htmlReport` puts sections on a page. `table`, `barChart`, `lineChart`, `figures` and `paragraph` return the HTML of a section's parts. They
 * escape all text.
 */

/** @param {unknown} text */
function escapeHtml(text) {
  return String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/** Colours by series, for light and for dark backgrounds; at least 3:1 contrast with either. */
const PALETTE = [
  ['#2563eb', '#7aa7ff'],
  ['#c2570c', '#ff9d5c'],
  ['#047857', '#4fd1a0'],
  ['#a21caf', '#e58cf0'],
  ['#4d7c0f', '#a9d65c'],
  ['#be123c', '#ff8fa3'],
];
const colour = (/** @type {number} */ i) => `var(--series-${i % PALETTE.length})`;
const paletteCss = (/** @type {0 | 1} */ mode) => PALETTE.map((pair, i) => `--series-${i}:${pair[mode]}`).join(';');

const STYLE = `
:root{color-scheme:light dark;--bg:#fff;--fg:#1a1d24;--muted:#5b6472;--line:#d9dde4;--card:#f6f7f9;${paletteCss(0)}}
@media (prefers-color-scheme:dark){:root{--bg:#14161a;--fg:#e7eaef;--muted:#9aa4b2;--line:#333a45;--card:#1c1f25;${paletteCss(1)}}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:2rem 1.25rem 4rem}h1{font-size:1.7rem;margin:0 0 .25rem}
h2{font-size:1.2rem;margin:2.5rem 0 .5rem}h3{font-size:1rem;margin:1.5rem 0 .25rem}p{margin:.5rem 0}.muted{color:var(--muted)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.75rem 0}
th,td{padding:.25rem .75rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0}th{font-weight:600;color:var(--muted)}
.figures{display:flex;flex-wrap:wrap;gap:.75rem;margin:1rem 0}.figures div{background:var(--card);border-radius:.5rem;padding:.75rem 1rem;min-width:9rem}
.figures b{display:block;font-size:1.5rem;line-height:1.2}.figures span{color:var(--muted);font-size:.85rem}
figure{margin:1rem 0}figcaption{color:var(--muted);font-size:.9rem}svg{width:100%;height:auto;display:block}
svg text{fill:var(--fg);font:12px system-ui,sans-serif}svg .tick{fill:var(--muted)}svg .grid{stroke:var(--line);stroke-width:1}
.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;padding:0;margin:.5rem 0;font-size:.9rem}
.legend i{display:inline-block;width:.8rem;height:.8rem;border-radius:.15rem;margin-right:.4rem;vertical-align:-.05rem}
pre{background:var(--card);border-radius:.5rem;padding:1rem;white-space:pre-wrap}@media print{main{max-width:none}figure,table{break-inside:avoid}}`.replaceAll(
  '\n',
  '',
);

/**
 * A whole page.
 * @param {{title: string, subtitle?: string, sections: {title: string, html: string[]}[]}} page
 */
export function htmlReport({ title, subtitle, sections }) {
  return [
    '<!doctype html><html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width,initial-scale=1">',
    `<title>${escapeHtml(title)}</title><style>${STYLE}</style></head><body><main>`,
    `<h1>${escapeHtml(title)}</h1>`,
    subtitle === undefined ? '' : `<p class="muted">${escapeHtml(subtitle)}</p>`,
    ...sections.map((section) => `<section><h2>${escapeHtml(section.title)}</h2>${section.html.join('\n')}</section>`),
    '</main></body></html>\n',
  ].join('\n');
}

/** @param {string} text */
export function paragraph(text) {
  return `<p>${escapeHtml(text)}</p>`;
}

/**
 * The few numbers that matter most, large.
 * @param {{value: string, label: string}[]} items
 */
export function figures(items) {
  const cards = items.map(({ value, label }) => `<div><b>${escapeHtml(value)}</b><span>${escapeHtml(label)}</span></div>`);
  return `<div class="figures">${cards.join('')}</div>`;
}

/**
 * @param {string[]} head
 * @param {(string | number)[][]} rows
 */
export function table(head, rows) {
  const cells = (/** @type {(string | number)[]} */ row, /** @type {string} */ tag) =>
    `<tr>${row.map((cell) => `<${tag}>${escapeHtml(cell)}</${tag}>`).join('')}</tr>`;
  return `<div class="wide"><table><thead>${cells(head, 'th')}</thead><tbody>${rows
    .map((row) => cells(row, 'td'))
    .join('')}</tbody></table></div>`;
}

/**
 * Round tick positions that cover a range: multiples of 1, 2 or 5 times a power of ten.
 * @param {number} low
 * @param {number} high
 * @param {number} [about] how many
 */
export function ticks(low, high, about = 5) {
  if (!(high > low)) return [low];
  const raw = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= raw) ?? 10);
  const result = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) result.push(Number((i * step).toPrecision(12)));
  return result;
}

/** @param {number} value */
const label = (value) => value.toLocaleString('en-US', { maximumSignificantDigits: 4 });
/** A coordinate, short. @param {number} value */
const at = (value) => String(Math.round(value * 10) / 10);

/** @param {string[]} names */
function legend(names) {
  if (names.length < 2) return '';
  const items = names.map((name, i) => `<li><i style="background:${colour(i)}"></i>${escapeHtml(name)}</li>`);
  return `<ul class="legend">${items.join('')}</ul>`;
}

/** @param {string} title @param {string[]} names @param {number} width @param {number} height @param {string[]} marks */
function figure(title, names, width, height, marks) {
  return [
    `<figure><figcaption>${escapeHtml(title)}</figcaption>${legend(names)}`,
    `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeHtml(title)}">`,
    ...marks,
    '</svg></figure>',
  ].join('\n');
}

/**
 * Horizontal bars from zero, grouped by label, one colour a series, each with its value at its end.
 * @param {object} chart
 * @param {string} chart.title says what is shown, with its unit
 * @param {string[]} chart.series names
 * @param {{label: string, values: (number | undefined)[]}[]} chart.groups values by series, all ≥ 0
 * @param {(value: number) => string} [chart.format] of the values
 */
export function barChart({ title, series, groups, format = label }) {
  const [width, left, right, bar, gap] = [860, 200, 80, 14, 12];
  const groupHeight = series.length * (bar + 2) + gap;
  const height = groups.length * groupHeight + 30;
  const high = Math.max(...groups.flatMap(({ values }) => values.map((value) => value ?? 0)), Number.MIN_VALUE);
  const x = (/** @type {number} */ value) => left + (value / high) * (width - left - right);
  const marks = ticks(0, high).map(
    (tick) =>
      `<line class="grid" x1="${at(x(tick))}" x2="${at(x(tick))}" y1="0" y2="${height - 22}"/>` +
      `<text class="tick" x="${at(x(tick))}" y="${height - 6}" text-anchor="middle">${label(tick)}</text>`,
  );
  groups.forEach((group, g) => {
    const top = g * groupHeight + gap / 2;
    const middle = top + (series.length * (bar + 2)) / 2 + 4;
    marks.push(`<text x="${left - 8}" y="${at(middle)}" text-anchor="end">${escapeHtml(group.label)}</text>`);
    group.values.forEach((value, s) => {
      if (value === undefined || !Number.isFinite(value)) return;
      const y = top + s * (bar + 2);
      const name = `${group.label}, ${series[s]}: ${format(value)}`;
      marks.push(
        `<rect x="${left}" y="${at(y)}" width="${at(Math.max(1, x(value) - left))}" height="${bar}" rx="2" fill="${colour(s)}">` +
          `<title>${escapeHtml(name)}</title></rect>` +
          `<text x="${at(x(value) + 5)}" y="${at(y + bar - 3)}">${escapeHtml(format(value))}</text>`,
      );
    });
  });
  return figure(title, series, width, height, marks);
}

/**
 * Lines over a numeric x axis. Later series are drawn thinner, so that equal curves on top of each other all show.
 * @param {object} chart
 * @param {string} chart.title
 * @param {string} chart.xLabel
 * @param {{name: string, points: [x: number, y: number][]}[]} chart.series points that are not finite leave a gap
 */
export function lineChart({ title, xLabel, series }) {
  const [width, height, left, right, top, bottom] = [860, 360, 64, 16, 10, 44];
  const all = series.flatMap(({ points }) => points.filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y)));
  if (all.length === 0) return paragraph(`${title}: no values`);
  const extent = (/** @type {number[]} */ values) => {
    const [low, high] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    return low === high ? [low - 0.5, high + 0.5] : [low, high];
  };
  const [x0, x1] = extent(all.map(([x]) => x));
  const [low, high] = extent(all.map(([, y]) => y));
  const [y0, y1] = [low - (high - low) * 0.05, high + (high - low) * 0.05];
  const wholeX = all.every(([x]) => Number.isInteger(x));
  const px = (/** @type {number} */ x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const py = (/** @type {number} */ y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
  const marks = [
    ...ticks(y0, y1, 6).map(
      (tick) =>
        `<line class="grid" x1="${left}" x2="${width - right}" y1="${at(py(tick))}" y2="${at(py(tick))}"/>` +
        `<text class="tick" x="${left - 8}" y="${at(py(tick) + 4)}" text-anchor="end">${label(tick)}</text>`,
    ),
    ...ticks(x0, x1, 8)
      .filter((tick) => !wholeX || Number.isInteger(tick))
      .map((tick) => `<text class="tick" x="${at(px(tick))}" y="${height - bottom + 18}" text-anchor="middle">${label(tick)}</text>`),
    `<text class="tick" x="${at((left + width - right) / 2)}" y="${height - 6}" text-anchor="middle">${escapeHtml(xLabel)}</text>`,
  ];
  series.forEach(({ name, points }, s) => {
    let path = '';
    let pen = 'M';
    for (const [x, y] of points) {
      if (!Number.isFinite(x) || !Number.isFinite(y)) {
        pen = 'M';
        continue;
      }
      path += `${pen}${at(px(x))} ${at(py(y))}`;
      pen = 'L';
    }
    const strokeWidth = Math.max(1.5, 2 + (series.length - 1 - s) * 2);
    marks.push(
      `<path d="${path}" fill="none" stroke="${colour(s)}" stroke-width="${strokeWidth}" stroke-linejoin="round" stroke-linecap="round">` +
        `<title>${escapeHtml(name)}</title></path>`,
    );
  });
  return figure(
    title,
    series.map(({ name }) => name),
    width,
    height,
    marks,
  );
}
