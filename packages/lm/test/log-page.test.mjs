// The page of a run in headless Chromium: what it draws, live and for who comes late, with the mouse, in the dark, on a phone; its end.

import { after, before, beforeEach, test } from 'node:test';
import assert from 'node:assert/strict';

import { servePage } from '../src/log/page.mjs';
import { findChromium, startChromium } from './lib/chromium.mjs';

/** @typedef {import('../src/log/events.mjs').TrainEvent} TrainEvent */

const program = findChromium();
const needed = {
  skip: program === undefined && 'there is no Chromium: apt-get install chromium, or set CHROMIUM to its path',
  timeout: 120_000,
};
const EVIL = '<img src=x onerror="document.body.innerText=1">';
const STEPS = 400;

/** @type {Awaited<ReturnType<typeof startChromium>>} */
let browser;
/** @type {Awaited<ReturnType<typeof servePage>>} */
let page;
before(async () => {
  if (program !== undefined) browser = await startChromium(program);
});
beforeEach(async () => {
  if (program === undefined) return;
  browser.errors.length = 0;
  await browser.call('Emulation.setDeviceMetricsOverride', { width: 1200, height: 1400, deviceScaleFactor: 1, mobile: false });
});
after(() => browser?.close());

/** @param {number} from @param {number} to */
function train(from, to) {
  for (let step = from; step <= to; step++) {
    const loss = 2 + 3 * Math.exp(-step / 50) + 0.1 * Math.sin(step);
    page.push({
      type: 'step',
      step,
      epoch: 0,
      loss,
      learningRate: 1e-3,
      gradNorm: 1 + (step % 3),
      tokensPerSecond: 5000,
      memoryBytes: 3e9,
    });
    if (step % 50 !== 0) continue;
    page.push({ type: 'eval', step, loss: 2 + 3 * Math.exp(-step / 50), perplexity: 8, bitsPerByte: 1.5, best: true });
    page.push({ type: 'checkpoint', step, path: `runs/a/step-${step}`, best: true });
    page.push({ type: 'sample', step, text: `${EVIL}\nsample of step ${step} & more` });
  }
}

/** Serves a page of a run that has begun. @param {import('node:test').TestContext} t */
async function serve(t) {
  page = await servePage({ title: EVIL, messageEvery: 20 });
  t.after(() => page.close());
  page.push({
    type: 'start',
    step: 0,
    steps: STEPS,
    parameters: 124e6,
    device: 'a <b>device</b>',
    precision: 'bf16',
    tokensPerStep: 4096,
    trainTokens: 1e6,
    validationTokens: 5e4,
  });
}

/** How many colours a chart's canvas has beside its ground; 0 where it is blank. @param {string} id */
const colours = (id) =>
  browser.evaluate(`(() => {
    const canvas = document.querySelector('#${id} canvas');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size - 1;
  })()`);
/** Values under a chart, by label. @param {string} id @returns {Promise<Record<string, string>>} */
const legend = (id) =>
  browser.evaluate(`Object.fromEntries([...document.querySelectorAll('#${id} .u-series')].map((row) =>
    [row.querySelector('.u-label').textContent, row.querySelector('.u-value').textContent]))`);
/** What the page's head says, by name. @returns {Promise<Record<string, string>>} */
const facts = () =>
  browser.evaluate(`Object.fromEntries([...document.querySelectorAll('#facts div')].map((fact) =>
    [fact.querySelector('dt').textContent, fact.querySelector('dd').textContent]))`);
/** @param {string} text */
const fact = (text) => `document.getElementById('facts').innerText.includes(${JSON.stringify(text)})`;
/** @param {string} id */
const picture = (id) => browser.evaluate(`document.querySelector('#${id} canvas').toDataURL()`);

const CHARTS = ['loss', 'rate', 'norm', 'speed', 'memory'];

/** A mouse event over the inside of a chart, at a share of its width. @param {string} id @param {string} type @param {number} share @param {number} [clicks] */
async function mouse(id, type, share, clicks = 0) {
  const { x, y, width, height } = await browser.evaluate(`document.querySelector('#${id} .u-over').getBoundingClientRect().toJSON()`);
  const button = clicks > 0 ? 'left' : 'none';
  await browser.call('Input.dispatchMouseEvent', { type, x: x + width * share, y: y + height / 2, button, clickCount: clicks });
}

test('what was and what comes is drawn; text stays text; a reload sees it all; the end is told', needed, async (t) => {
  await serve(t);
  train(1, 100);
  await browser.open(page.url);
  await browser.until(fact('100 of 400'));
  for (const id of CHARTS) assert.ok((await colours(id)) > 10, id);
  assert.equal(await browser.evaluate('document.getElementById("title").textContent'), EVIL);
  assert.equal(await browser.evaluate('document.querySelectorAll("img, #about b").length'), 0);
  assert.equal(await browser.evaluate('document.getElementById("state").textContent'), 'running');
  assert.match(
    await browser.evaluate('document.getElementById("about").textContent'),
    /^124M parameters in bf16 on a <b>device<\/b> · 1M tokens/,
  );
  const { 'Time left': left, ...rest } = await facts();
  assert.match(left, /^(≥ )?\d+:\d\d$/);
  assert.deepEqual(rest, {
    Step: '100 of 400',
    Loss: '2.355',
    'Validation loss': '2.406',
    Perplexity: '8.000',
    'Bits a byte': '1.500',
    'Best validation loss': '2.406 at step 100',
    'Tokens a second': '5,000',
    Memory: '2.79 GiB',
    'Last checkpoint': 'runs/a/step-100',
    'Best checkpoint': 'runs/a/step-100',
  });
  assert.deepEqual(await legend('norm'), { step: '100', 'norm before clipping': '2.000' });

  const before = await picture('loss');
  train(101, 150);
  await browser.until(fact('150 of 400'));
  assert.notEqual(await picture('loss'), before);
  assert.equal((await legend('loss')).validation, '2.149');

  for (const again of [false, true]) {
    if (again) await browser.call('Page.reload');
    await browser.until('document.querySelectorAll("article").length === 3');
    assert.deepEqual(await browser.evaluate('[...document.querySelectorAll("article pre")].map((pre) => pre.textContent)'), [
      `${EVIL}\nsample of step 150 & more`,
      `${EVIL}\nsample of step 100 & more`,
      `${EVIL}\nsample of step 50 & more`,
    ]);
    assert.deepEqual((await legend('loss')).step, '150');
  }

  page.push({ type: 'done', step: 150, reason: 'early-stopping', bestStep: 150, bestLoss: 2.149, seconds: 3723 });
  await page.close();
  await browser.until('document.getElementById("state").className === "done"');
  assert.match(await browser.evaluate('document.getElementById("state").textContent'), /^stopped early/);
  assert.equal((await facts())['Time taken'], '1:02:03');
  // The server is gone, which is no news.
  await new Promise((done) => setTimeout(done, 300));
  assert.equal(await browser.evaluate('document.getElementById("state").className'), 'done');
  assert.deepEqual(browser.errors, []);
});

test('the mouse shows all charts’ values at a step, zooms all, and live steps leave the zoom', needed, async (t) => {
  await serve(t);
  train(1, 200);
  await browser.open(page.url);
  await browser.until(fact('200 of 400'));
  await mouse('loss', 'mouseMoved', 0.5);
  const at = (await legend('loss')).step;
  assert.ok(Number(at) > 90 && Number(at) < 110, at);
  for (const id of CHARTS) assert.equal((await legend(id)).step, at, id);
  assert.equal((await legend('loss')).validation, Number(at) < 100 ? '3.104' : '2.406', 'the latest evaluation until then');

  await mouse('loss', 'mousePressed', 0.5, 1);
  await mouse('loss', 'mouseMoved', 0.75, 1);
  await mouse('loss', 'mouseReleased', 0.75, 1);
  /** The steps at both ends of a chart. @param {string} id */
  const ends = async (id) => {
    await mouse(id, 'mouseMoved', 0.001);
    const first = Number((await legend(id)).step);
    await mouse(id, 'mouseMoved', 0.999);
    return [first, Number((await legend(id)).step)];
  };
  const near = (/** @type {number[]} */ [first, last]) => Math.abs(first - Number(at)) < 5 && Math.abs(last - 150) < 5;
  for (const id of CHARTS) assert.ok(near(await ends(id)), `${id}: ${await ends(id)}`);
  train(201, 250);
  await browser.until(fact('250 of 400'));
  for (const id of CHARTS) assert.ok(near(await ends(id)), `${id}: ${await ends(id)}`);
  await browser.evaluate('document.getElementById("log").click()');
  assert.ok(near(await ends('loss')), `in log scale: ${await ends('loss')}`);
  for (const clicks of [1, 2]) {
    await mouse('norm', 'mousePressed', 0.5, clicks);
    await mouse('norm', 'mouseReleased', 0.5, clicks);
  }
  for (const id of CHARTS) assert.deepEqual(await ends(id), [1, 250], id);
  assert.deepEqual(browser.errors, []);
});

test('log scale, smoothing, the dark, a phone', needed, async (t) => {
  await serve(t);
  train(1, 100);
  await browser.open(page.url);
  await browser.until(fact('100 of 400'));
  const linear = await picture('loss');
  await browser.evaluate('document.getElementById("log").click()');
  const log = await picture('loss');
  assert.notEqual(log, linear);
  const { smoothed } = await legend('loss');
  await browser.evaluate('(smoothing.value = 0, smoothing.dispatchEvent(new Event("input")))');
  const sharp = await legend('loss');
  assert.equal(sharp.smoothed, sharp['each step']);
  assert.notEqual(sharp.smoothed, smoothed);

  const light = await picture('rate');
  await browser.call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: 'dark' }] });
  assert.equal(await browser.evaluate('getComputedStyle(document.body).backgroundColor'), 'rgb(20, 23, 27)');
  await browser.until(`document.querySelector('#rate canvas').toDataURL() !== ${JSON.stringify(light)}`);
  assert.equal(await browser.evaluate("document.querySelectorAll('canvas').length"), CHARTS.length);
  await browser.call('Emulation.setEmulatedMedia', { features: [] });

  await browser.call('Emulation.setDeviceMetricsOverride', { width: 390, height: 844, deviceScaleFactor: 2, mobile: true });
  await browser.until("document.querySelector('#loss canvas').getBoundingClientRect().width < 390");
  assert.ok(await browser.evaluate('document.documentElement.scrollWidth <= 390'));
  for (const id of CHARTS) assert.ok((await colours(id)) > 10, id);
  assert.deepEqual(browser.errors, []);
});

test('a run that measures little shows only that; a server that goes away is told, and seen again when it is back', needed, async (t) => {
  page = await servePage({ messageEvery: 20 });
  t.after(() => page.close());
  await browser.open(page.url);
  await browser.until('document.getElementById("state").textContent === "starting"');
  assert.deepEqual(browser.errors, []);
  const hidden = () => browser.evaluate(`${JSON.stringify(CHARTS)}.filter((id) => document.getElementById(id).hidden)`);
  assert.deepEqual(await hidden(), CHARTS);
  page.push({ type: 'step', step: 1, epoch: 0, loss: 3, learningRate: 1e-3 });
  page.push({ type: 'step', step: 2, epoch: 0, loss: NaN, learningRate: 1e-3 });
  await browser.until('document.querySelectorAll("canvas").length === 2');
  assert.deepEqual(await hidden(), ['norm', 'speed', 'memory']);

  const { port } = new URL(page.url);
  await page.close();
  await browser.until('document.getElementById("state").className === "gone"');
  assert.match(await browser.evaluate('document.getElementById("state").textContent'), /no connection/);
  page = await servePage({ port: Number(port), messageEvery: 20, title: 'it is back' });
  await browser.until('document.getElementById("title").textContent === "it is back"');
  assert.equal(await browser.evaluate('document.getElementById("state").className'), 'live');
});
