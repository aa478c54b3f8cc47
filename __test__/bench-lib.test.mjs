import { test } from 'node:test';
import assert from 'node:assert/strict';
import { helpText, parseCommandLine, UsageError } from '../bin/lib/options.mjs';
import { makeText } from '../packages/alpha-backend/bench/lib/text.mjs';
import { timedAddon, timesSince } from '../packages/alpha-backend/bench/lib/timed.mjs';
import { barChart, figures, htmlReport, lineChart, paragraph, table, ticks } from '../benches/lib/report.mjs';
import { trainingReport } from '../benches/lib/training-report.mjs';
import { driverText } from '../benches/lib/addon.mjs';
import { extremes, format, mean, median, quantile, spread, textTable } from '../benches/lib/stats.mjs';

const OPTIONS = /** @type {const} */ ({
  file: { type: 'string', required: true, value: 'FILE', help: 'a file' },
  steps: { type: 'integer', default: 5, min: 1, help: 'how many' },
  rate: { type: 'number', help: 'a rate' },
  kind: { type: 'string', default: 'a', choices: ['a', 'b'], help: 'which' },
  json: { type: 'boolean', help: 'JSON' },
});

test('values are converted by the table, and defaults are filled in', () => {
  assert.deepEqual(parseCommandLine(OPTIONS, ['--file', 'x']).values, { file: 'x', steps: 5, rate: undefined, kind: 'a', json: false });
  assert.deepEqual(parseCommandLine(OPTIONS, ['--file=x', '--steps', '7', '--rate=-0.5e1', '--kind', 'b', '--json']).values, {
    file: 'x',
    steps: 7,
    rate: -5,
    kind: 'b',
    json: true,
  });
});

test('an option that does not fit is an error that names it', () => {
  for (const [args, message] of /** @type {[string[], RegExp][]} */ ([
    [[], /--file FILE is required/],
    [['--file', 'x', '--steps', '0'], /--steps 0: must be an integer of at least 1/],
    [['--file', 'x', '--steps', '1.5'], /--steps 1\.5: must be an integer/],
    [['--file', 'x', '--steps', ''], /--steps : must be an integer/],
    [['--file', 'x', '--rate', 'fast'], /--rate fast: must be a number/],
    [['--file', 'x', '--kind', 'c'], /--kind c: must be one of a, b/],
    [['--file', 'x', '--other'], /other/],
    [['--file', 'x', 'stray'], /stray/],
    [['--json=yes', '--file', 'x'], /json/],
  ])) {
    assert.throws(
      () => parseCommandLine(OPTIONS, args),
      (error) => error instanceof UsageError && message.test(error.message),
      String(args),
    );
  }
});

test('the help names every option, its choices and its default', () => {
  const help = helpText('node x.mjs', OPTIONS);
  for (const part of ['node x.mjs', '--file FILE', '(default 5)', '--kind a|b', '--json ']) assert.ok(help.includes(part), part);
  const empty = helpText('node x.mjs', { prompt: { type: 'string', default: '', help: 'text to continue' } });
  assert.match(empty, /text to continue$/);
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
});

test('the extremes of a long run’s steps', () => {
  const values = Float64Array.from({ length: 200_000 }, (_, i) => (i * 7919) % 200_000);
  assert.deepEqual(extremes(values), { low: 0, high: 199_999 });
  assert.deepEqual(extremes([3]), { low: 3, high: 3 });
  assert.deepEqual(extremes([]), { low: NaN, high: NaN });
});

test('figures have three significant digits', () => {
  assert.deepEqual([0, 0.01234, 1.2345, 12.345, 123.45, 12345.6, NaN].map(format), ['0', '0.0123', '1.23', '12.3', '123', '12,346', '–']);
});

test('text tables line up', () => {
  assert.equal(
    textTable(
      ['call', 'µs'],
      [
        ['a', '10'],
        ['longer', '1'],
      ],
    ),
    'call    µs\n------  --\na       10\nlonger   1',
  );
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
    title: evil,
    subtitle: evil,
    sections: [
      {
        title: evil,
        html: [
          paragraph(evil),
          figures([{ value: evil, label: evil }]),
          table([evil, 'n'], [[evil, 3]]),
          barChart({
            title: evil,
            series: ['a', evil],
            groups: [
              { label: evil, values: [1, undefined] },
              { label: 'b', values: [0, 2.5] },
            ],
          }),
          lineChart({
            title: evil,
            xLabel: evil,
            series: [
              {
                name: evil,
                points: [
                  [1, 2],
                  [2, NaN],
                  [3, 4],
                  [4, 3],
                ],
              },
              { name: 'b', points: [] },
            ],
          }),
          lineChart({ title: 'flat', xLabel: 'x', series: [{ name: 'one', points: [[1, 1]] }] }),
          lineChart({ title: 'none', xLabel: 'x', series: [{ name: 'one', points: [[1, NaN]] }] }),
        ],
      },
    ],
  });
  assert.ok(!page.includes('<script'));
  assert.ok(!/(?:src|href)=|url\(|@import|https?:/.test(page));
  assert.ok(!/NaN|Infinity|undefined/.test(page.replace(evil, '')));
  wellFormed(page.replace('<!doctype html>', ''));
});

test('a line with a gap starts anew after it; bars are as long as their values', () => {
  const line = lineChart({
    title: 't',
    xLabel: 'x',
    series: [
      {
        name: 'a',
        points: [
          [0, 0],
          [1, NaN],
          [2, 1],
          [3, 2],
        ],
      },
    ],
  });
  assert.equal(line.match(/ d="([^"]*)"/)?.[1].replace(/[\d. ]+/g, ''), 'MML');
  const bars = barChart({
    title: 't',
    series: ['a'],
    groups: [
      { label: 'x', values: [10] },
      { label: 'y', values: [5] },
    ],
  });
  const widths = [...bars.matchAll(/ width="([\d.]+)"/g)].map((match) => Number(match[1]));
  assert.equal(widths[0], widths[1] * 2);
});

test('the page of a training run is well-formed', () => {
  const page = trainingReport({
    device: 'a <device>',
    config: { layers: 2, precision: 'f32', seed: 1 },
    parameters: 144000,
    mode: 'plain',
    dispatchesPerStep: 90,
    data: 'a novel',
    tokens: 123456,
    losses: [5.5, 5.2, NaN, 4.9],
    finalLoss: 4.9,
    tokensPerSecond: { median: 3900, low: 3800, high: 4000, perStep: [3800, 4000] },
    hostMillisecondsPerStep: 0.4,
    flopsPerToken: 1e6,
    matrixRate: 1e12,
    matrixShare: 0.0039,
    memoryBytes: 2 ** 26,
    seconds: 12,
    driver: driverText({ driverName: 'llvmpipe', driverInfo: 'Mesa 22.3.6 (LLVM 15.0.6)', driverVersion: 1 }),
    kernelTimes: [
      { role: 'head, forward (matmul)', count: 3, microseconds: 1500, flops: 3e9 },
      { role: 'glu', count: 1, microseconds: 20, flops: 0 },
    ],
  });
  wellFormed(page.replace('<!doctype html>', ''));
  for (const part of ['4.9000', '3,900', '0.4 %', '64.0 MiB', '0:12', '2,000</td>', 'a &#60;device&#62;', 'llvmpipe, Mesa 22.3.6'])
    assert.ok(page.includes(part), part);
  assert.ok(!page.includes('NaN'));
});

test('a driver is named in words, by its number only where the addon says no more', () => {
  assert.equal(driverText({ driverName: 'NVIDIA', driverInfo: '580.95.05', driverVersion: 2434646144 }), 'NVIDIA, 580.95.05');
  assert.equal(driverText({ driverName: 'NVIDIA', driverInfo: '', driverVersion: 5 }), 'NVIDIA');
  assert.equal(driverText({ driverVersion: 5 }), 'version 5');
});

test('a made-up text is the same for a seed, long enough, and has words', () => {
  const text = makeText(50_000, 3);
  assert.equal(text, makeText(50_000, 3));
  assert.notEqual(text, makeText(50_000, 4));
  assert.ok(text.length >= 49_000 && text.length < 52_000, `${text.length}`);
  const words = text.toLowerCase().match(/[a-z]+/g) ?? [];
  assert.ok(new Set(words).size > 1000);
});

test('timedAddon counts calls, bytes and dispatches, and passes results and errors on', () => {
  const addon = Object.defineProperties(
    { limit: 3 },
    {
      createBuffer: { value: (/** @type {number} */ bytes) => bytes + 1 },
      batchExecuteAll: { value: () => 7 },
      readBuffer: {
        value: () => {
          throw new TypeError('gone');
        },
      },
    },
  );
  const { addon: timed, times } = timedAddon(/** @type {any} */ (addon));
  assert.equal(timed.limit, 3);
  assert.equal(timed.createBuffer(64), 65);
  const before = times();
  assert.equal(timed.createBuffer(36), 37);
  assert.equal(timed.batchExecuteAll(new ArrayBuffer(8), 40), 7);
  timed.batchExecuteAll(Uint32Array.of(5, 0).buffer);
  assert.throws(() => timed.readBuffer(1), { name: 'TypeError', message: 'gone' });
  const { createBuffer, batchExecuteAll, readBuffer } = times();
  assert.deepEqual([createBuffer.count, createBuffer.bytes, batchExecuteAll.dispatches], [2, 100, 45]);
  assert.equal(readBuffer, undefined);
  const since = timesSince(times(), before);
  assert.deepEqual(Object.keys(since), ['createBuffer', 'batchExecuteAll']);
  assert.deepEqual([since.createBuffer.count, since.createBuffer.bytes], [1, 36]);
});
