import { test } from 'node:test';
import assert from 'node:assert/strict';
import { helpText, parseOptions, UsageError } from '../benches/lib/args.mjs';
import { barChart, figures, htmlReport, lineChart, paragraph, table, ticks } from '../benches/lib/report.mjs';
import { format, mean, median, quantile, spread, summarize, textTable } from '../benches/lib/stats.mjs';

const OPTIONS = /** @type {const} */ ({
  file: { type: 'string', required: true, value: 'FILE', help: 'a file' },
  steps: { type: 'integer', default: 5, min: 1, help: 'how many' },
  rate: { type: 'number', help: 'a rate' },
  kind: { type: 'string', default: 'a', choices: ['a', 'b'], help: 'which' },
  json: { type: 'boolean', help: 'JSON' },
});

test('parseOptions converts by the table and fills in defaults', () => {
  assert.deepEqual(parseOptions(OPTIONS, ['--file', 'x']), { file: 'x', steps: 5, rate: undefined, kind: 'a', json: false });
  assert.deepEqual(parseOptions(OPTIONS, ['--file=x', '--steps', '7', '--rate=-0.5e1', '--kind', 'b', '--json']), {
    file: 'x', steps: 7, rate: -5, kind: 'b', json: true,
  });
});

test('parseOptions names the option that does not fit', () => {
  for (const [args, message] of /** @type {[string[], RegExp][]} */ ([
    [[], /--file FILE is required/],
    [['--file', 'x', '--steps', '0'], /--steps 0: must be at least 1/],
    [['--file', 'x', '--steps', '1.5'], /--steps 1\.5: must be an integer/],
    [['--file', 'x', '--steps', ''], /--steps : must be an integer/],
    [['--file', 'x', '--rate', 'fast'], /--rate fast: must be a number/],
    [['--file', 'x', '--kind', 'c'], /--kind c: must be one of a, b/],
    [['--file', 'x', '--other'], /other/],
    [['--file', 'x', 'stray'], /stray/],
    [['--json=yes', '--file', 'x'], /json/],
  ])) {
    assert.throws(() => parseOptions(OPTIONS, args), (error) => error instanceof UsageError && message.test(error.message), String(args));
  }
});

test('the help names every option, its choices and its default', () => {
  const help = helpText('node x.mjs', OPTIONS);
  for (const part of ['node x.mjs', '--file FILE', '(default 5)', '--kind a|b', '--json ']) assert.ok(help.includes(part), part);
});

test('quantiles interpolate between order statistics', () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 3, 2]), 2.5);
  assert.equal(quantile([10, 20, 30, 40, 50], 0.25), 20);
  assert.equal(quantile([1, 2], 0.9), 1.9);
  assert.equal(quantile([7], 1), 7);
  assert.equal(median(Float64Array.of(10, 9, 100)), 10);
  assert.throws(() => median([]), RangeError);
  assert.throws(() => mean([]), RangeError);
  assert.throws(() => quantile([1], 1.5), RangeError);
});

test('the spread is half the quartiles’ distance over the median', () => {
  assert.equal(spread([1, 2, 3, 4, 5]), 1 / 3);
  assert.equal(spread([5, 5, 5]), 0);
  assert.deepEqual(summarize([4, 2, 6]), { count: 3, median: 4, mean: 4, min: 2, max: 6, spread: 0.25 });
});

test('figures have three significant digits', () => {
  assert.deepEqual([0, 0.01234, 1.2345, 12.345, 123.45, 12345.6, NaN].map(format), ['0', '0.0123', '1.23', '12.3', '123', '12,346', '–']);
});

test('text tables line up', () => {
  assert.equal(textTable(['call', 'µs'], [['a', '10'], ['longer', '1']]), 'call    µs\n------  --\na       10\nlonger   1');
});

test('ticks are round and inside the range', () => {
  assert.deepEqual(ticks(0, 10), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(ticks(0.13, 0.42, 3), [0.2, 0.3, 0.4]);
  assert.deepEqual(ticks(3, 3), [3]);
});

/** Every opened element is closed, in order: enough of XML to catch a broken page. @param {string} html */
function wellFormed(html) {
  /** @type {string[]} */ const open = [];
  for (const [, close, name, , self] of html.matchAll(/<(\/?)([a-z0-9]+)((?:"[^"]*"|[^">])*?)(\/?)>/g)) {
    if (['meta', 'br'].includes(name) || self) continue;
    if (close) assert.equal(open.pop(), name);
    else open.push(name);
  }
  assert.deepEqual(open, []);
}

test('a report is one well-formed page that loads nothing', () => {
  const evil = '<script>alert("x")</script>&\'';
  const page = htmlReport({
    title: evil, subtitle: evil,
    sections: [{
      title: evil,
      html: [
        paragraph(evil), figures([{ value: evil, label: evil }]), table([evil, 'n'], [[evil, 3]]),
        barChart({ title: evil, series: ['a', evil], groups: [{ label: evil, values: [1, undefined] }, { label: 'b', values: [0, 2.5] }] }),
        lineChart({ title: evil, xLabel: evil, series: [{ name: evil, points: [[1, 2], [2, NaN], [3, 4], [4, 3]] }, { name: 'b', points: [] }] }),
        lineChart({ title: 'flat', xLabel: 'x', series: [{ name: 'one', points: [[1, 1]] }] }),
        lineChart({ title: 'none', xLabel: 'x', series: [{ name: 'one', points: [[1, NaN]] }] }),
      ],
    }],
  });
  assert.ok(!page.includes('<script'));
  assert.ok(!/(?:src|href)=|url\(|@import|https?:/.test(page));
  assert.ok(!/NaN|Infinity|undefined/.test(page.replace(evil, '')));
  wellFormed(page.replace('<!doctype html>', ''));
});

test('a line with a gap starts anew after it; bars are as long as their values', () => {
  const line = lineChart({ title: 't', xLabel: 'x', series: [{ name: 'a', points: [[0, 0], [1, NaN], [2, 1], [3, 2]] }] });
  assert.equal(line.match(/ d="([^"]*)"/)?.[1].replace(/[\d. ]+/g, ''), 'MML');
  const bars = barChart({ title: 't', series: ['a'], groups: [{ label: 'x', values: [10] }, { label: 'y', values: [5] }] });
  const widths = [...bars.matchAll(/ width="([\d.]+)"/g)].map((match) => Number(match[1]));
  assert.equal(widths[0], widths[1] * 2);
});
