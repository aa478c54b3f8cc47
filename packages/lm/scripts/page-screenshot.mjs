#!/usr/bin/env node
// Makes docs/guide/images/training-page.png: the page of `--ui` with a run's events, replayed, in headless Chromium.
//
//   node packages/lm/scripts/page-screenshot.mjs EVENTS.jsonl [OUT.png]
//
// EVENTS.jsonl has what `train()` yielded, an event a line, each with `at`: milliseconds since the start. Cut it where the run is to stand.

import { readFileSync, writeFileSync } from 'node:fs';

import { servePage } from '../src/log/page.mjs';
import { findChromium, startChromium } from '../test/lib/chromium.mjs';

const [, , from, to = 'docs/guide/images/training-page.png'] = process.argv;
const program = findChromium();
if (from === undefined || program === undefined)
  throw new Error(from === undefined ? 'usage: … EVENTS.jsonl [OUT.png]' : 'there is no Chromium');

let clock = 0;
const page = await servePage({ title: 'moby-dick', now: () => clock });
for (const line of readFileSync(from, 'utf8').trim().split('\n')) {
  const { at, ...event } = JSON.parse(line);
  clock = at;
  page.push(event);
}
const browser = await startChromium(program);
try {
  await browser.call('Emulation.setDeviceMetricsOverride', { width: 1100, height: 1240, deviceScaleFactor: 1, mobile: false });
  await browser.open(page.url);
  await browser.until("document.querySelectorAll('canvas').length > 1");
  const { data } = await browser.call('Page.captureScreenshot', { format: 'png' });
  writeFileSync(to, Buffer.from(data, 'base64'));
} finally {
  await browser.close();
  await page.close();
}
