// Drives headless Chromium over its pipe (https://chromedevtools.github.io/devtools-protocol/), without a library.

import { spawn } from 'node:child_process';
import { accessSync, constants, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';

/** A Chromium or Chrome of this machine, or undefined. */
export function findChromium() {
  const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];
  const known = [
    '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
    'C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe',
  ];
  const paths = (process.env.PATH ?? '').split(delimiter).flatMap((folder) => names.map((name) => join(folder, name)));
  return [process.env.CHROMIUM ?? '', ...paths, ...known].find((path) => {
    try {
      accessSync(path, constants.X_OK);
      return path !== '';
    } catch {
      return false;
    }
  });
}

/**
 * Starts it with a tab; end it with `close`.
 * @param {string} program
 */
export async function startChromium(program) {
  const profile = mkdtempSync(join(tmpdir(), 'helios-chromium-'));
  const quiet = ['--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-quic'];
  // Its sandbox does not start as root or in a container; it opens nothing but the test's page.
  const options = [
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-dev-shm-usage',
    '--hide-scrollbars',
    '--remote-debugging-pipe',
  ];
  const child = spawn(program, [...options, ...quiet, `--user-data-dir=${profile}`, 'about:blank'], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
  });
  const [, , , input, output] = /** @type {import('node:net').Socket[]} */ (/** @type {unknown} */ (child.stdio));
  /** @type {Map<number, { done(value: any): void, failed(error: Error): void }>} */
  const calls = new Map();
  const gone = new Promise((done) => child.once('close', done));
  child.once('error', (error) => calls.forEach(({ failed }) => failed(error)));
  gone.then(() => calls.forEach(({ failed }) => failed(new Error('Chromium has ended'))));
  input.on('error', () => {});

  /** What the page logged as an error, or threw. @type {string[]} */
  const errors = [];
  let rest = '';
  output.setEncoding('utf8');
  output.on('data', (chunk) => {
    const messages = (rest + chunk).split('\0');
    rest = messages.pop() ?? '';
    for (const { id, method, params, result, error } of messages.map((text) => JSON.parse(text))) {
      if (error) calls.get(id)?.failed(new Error(error.message));
      else calls.get(id)?.done(result);
      calls.delete(id);
      if (method === 'Runtime.exceptionThrown') errors.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
      if (method === 'Log.entryAdded' && params.entry.level === 'error') errors.push(`${params.entry.text} (${params.entry.url})`);
      if (method === 'Runtime.consoleAPICalled' && params.type === 'error') errors.push(JSON.stringify(params.args));
    }
  });

  let last = 0;
  /** @type {string | undefined} */
  let sessionId;
  /** @param {string} method @param {object} [params] @returns {Promise<any>} */
  const call = (method, params = {}) =>
    new Promise((done, failed) => {
      const id = ++last;
      calls.set(id, { done, failed });
      input.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  const { targetId } = await call('Target.createTarget', { url: 'about:blank' });
  ({ sessionId } = await call('Target.attachToTarget', { targetId, flatten: true }));
  for (const domain of ['Page', 'Runtime', 'Log']) await call(`${domain}.enable`);

  /** The value of an expression in the page, awaited. @param {string} expression @returns {Promise<any>} */
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await call('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  return {
    call,
    evaluate,
    errors,
    /** @param {string} url */
    open: (url) => call('Page.navigate', { url }),
    /** Waits until an expression in the page is true; fails after half a minute. @param {string} expression */
    async until(expression) {
      for (let tries = 0; tries < 600; tries++) {
        // Between two pages there is none to ask.
        if (await evaluate(`Boolean(${expression})`).catch(() => false)) return;
        await new Promise((done) => setTimeout(done, 50));
      }
      throw new Error(`never true: ${expression}; the page says: ${await evaluate('document.body.innerText')}`);
    },
    async close() {
      // Asked, it ends its own processes too, which write into the profile.
      sessionId = undefined;
      call('Browser.close').catch(() => {});
      const late = setTimeout(() => child.kill('SIGKILL'), 10_000);
      await gone;
      clearTimeout(late);
      rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    },
  };
}
