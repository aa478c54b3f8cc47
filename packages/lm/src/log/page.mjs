// A run as a live page on this machine: a small HTTP server, whose page (page/) draws what arrives as server-sent events.

import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

import { metricsOf, readMetrics } from './metrics.mjs';
import { TimeLeft } from './time-left.mjs';

/** @typedef {import('./events.mjs').TrainEvent} TrainEvent */
/** A step and its values, as the page's charts have them. @typedef {[step: number, ...values: (number | null)[]]} Row */

/** Points of a chart: more than any screen has columns. */
const MAX_ROWS = 4000;
const MAX_SAMPLES = 20;
const MAX_SAMPLE_LENGTH = 10_000;
const MAX_CLIENTS = 32;
/** Bytes that may wait for a client; one that reads slower is dropped, and gets everything anew when it comes back. */
const MAX_BACKLOG = 2 ** 22;

const HEADERS = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'",
  'Cross-Origin-Resource-Policy': 'same-origin',
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cache-Control': 'no-store',
};

/** Files of the page, by path. */
const ASSETS = /** @type {const} */ ({
  '/': ['page/index.html', 'text/html'],
  '/page.js': ['page/page.js', 'text/javascript'],
  '/format.mjs': ['format.mjs', 'text/javascript'],
  '/page.css': ['page/page.css', 'text/css'],
  '/uplot.js': ['uplot/dist/uPlot.iife.min.js', 'text/javascript'],
  '/uplot.css': ['uplot/dist/uPlot.min.css', 'text/css'],
});

/** Rows of a run of any length: once they are too many, neighbours are averaged, and each row stands for twice as many steps. */
export class Rows {
  /** @type {Row[]} */
  rows = [];
  /** How many of what is added make a row. */
  stride = 1;
  /** How many of the rows clients know; undefined once those have changed. @type {number | undefined} */
  known = 0;
  /** @type {Row[]} */
  #waiting = [];
  #max;

  constructor(max = MAX_ROWS) {
    this.#max = max;
  }

  /** @param {Row} row */
  add(row) {
    this.#waiting.push(row);
    if (this.#waiting.length < this.stride) return;
    this.rows.push(mean(this.#waiting));
    this.#waiting = [];
    if (this.rows.length <= this.#max) return;
    const { rows } = this;
    this.rows = Array.from({ length: Math.ceil(rows.length / 2) }, (_, i) => mean(rows.slice(2 * i, 2 * i + 2)));
    this.stride *= 2;
    this.known = undefined;
  }

  /** Drops what is later than a step. @param {number} step */
  cut(step) {
    this.rows = this.rows.filter((row) => row[0] <= step);
    this.#waiting = this.#waiting.filter((row) => row[0] <= step);
    this.known = undefined;
  }
}

/** The mean of each value over the rows that have it, at the last one's step. @param {Row[]} rows @returns {Row} */
function mean(rows) {
  if (rows.length === 1) return rows[0];
  const values = rows[0].slice(1).map((_, i) => {
    const there = rows.flatMap((row) => row[i + 1] ?? []);
    return there.length > 0 ? there.reduce((sum, value) => sum + value, 0) / there.length : null;
  });
  return [rows[rows.length - 1][0], ...values];
}

/** Six digits: more cannot be seen. @param {number | null | undefined} value */
const short = (value) => (Number.isFinite(value) ? Number(/** @type {number} */ (value).toPrecision(6)) : null);

/** What the page shows of a run, and what of it clients know. */
class Run {
  #steps = new Rows();
  #evals = new Rows();
  /** @type {{ step: number, text: string }[]} */
  #samples = [];
  #samplesKnown = true;
  /** The latest event of each kind, and the best checkpoint's. @type {Partial<Record<TrainEvent['type'] | 'best', TrainEvent>>} */
  #latest = {};
  #title;
  #left;

  /** @param {string} title @param {() => number} [now] */
  constructor(title, now) {
    this.#title = title;
    this.#left = new TimeLeft({ now });
  }

  /** @param {import('./metrics.mjs').Metrics} metrics @param {number} [memory] */
  add({ step, loss, learning_rate, grad_norm, tokens_per_second, eval_loss }, memory) {
    if (loss !== undefined) this.#steps.add([step, ...[loss, learning_rate, grad_norm, tokens_per_second, memory].map(short)]);
    if (eval_loss !== undefined) this.#evals.add([step, short(eval_loss)]);
  }

  /** @param {TrainEvent} event */
  push(event) {
    this.#left.push(event);
    const metrics = metricsOf(event);
    if (metrics) this.add(metrics, event.type === 'step' ? event.memoryBytes : undefined);
    if (event.type === 'start') {
      this.#latest = {};
      for (const rows of [this.#steps, this.#evals]) rows.cut(event.step);
    }
    if (event.type === 'sample') {
      this.#samples = [...this.#samples.slice(1 - MAX_SAMPLES), { step: event.step, text: event.text.slice(0, MAX_SAMPLE_LENGTH) }];
      this.#samplesKnown = false;
    } else {
      this.#latest[event.type] = event;
      if (event.type === 'checkpoint' && event.best) this.#latest.best = event;
    }
  }

  /** All of it, as a message. */
  whole() {
    const [steps, evals, samples] = [this.#steps.rows, this.#evals.rows, this.#samples];
    return message('run', { title: this.#title, steps, evals, samples, latest: this.#latest, left: this.#left.left() });
  }

  /** What clients do not know yet, as a message; they know it then. */
  news() {
    const rows = [this.#steps, this.#evals];
    const [steps, evals] = rows.map(({ rows, known }) => rows.slice(known));
    const text = rows.some(({ known }) => known === undefined)
      ? this.whole()
      : message('more', {
          steps,
          evals,
          samples: this.#samplesKnown ? undefined : this.#samples,
          latest: this.#latest,
          left: this.#left.left(),
        });
    for (const each of rows) each.known = each.rows.length;
    this.#samplesKnown = true;
    return text;
  }
}

/** @param {string} event @param {unknown} data */
const message = (event, data) => Buffer.from(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);

/** Whether a request names this machine. Another name that leads here is a stranger's page (DNS rebinding). @param {string | undefined} host */
const isOwnHost = (host) => /^(127\.0\.0\.1|localhost)(:\d+)?$/i.test(host ?? '');

/**
 * Shows a run on a page at 127.0.0.1; to see it from elsewhere, forward the port (`ssh -L 8080:localhost:PORT HOST`). The page does not keep
 * the process alive.
 * @param {{ port?: number, title?: string, history?: string, messageEvery?: number, now?: () => number }} [options] `port`: 0 takes a
 *   free one; `history`: path of a `metrics.jsonl`, if it is there, with what came before; `messageEvery`: milliseconds between messages
 *   to the page; `now` in milliseconds
 * @returns {Promise<{ url: string, push(event: TrainEvent): void, close(): Promise<void> }>}
 * @throws {Error} if the port is taken
 */
export async function servePage({ port = 0, title = 'Training', history, messageEvery = 200, now } = {}) {
  const require = createRequire(import.meta.url);
  const assets = new Map(
    Object.entries(ASSETS).map(([path, [file, type]]) => {
      const from = file.startsWith('uplot/') ? require.resolve(file) : new URL(file, import.meta.url);
      return [path, { type: `${type}; charset=utf-8`, body: readFileSync(from) }];
    }),
  );
  const run = new Run(title, now);
  if (history !== undefined && existsSync(history)) for (const { metrics } of readMetrics(history)) run.add(metrics);

  /** @type {Set<import('node:http').ServerResponse>} */
  const clients = new Set();
  const server = createServer((request, response) => {
    const path = (request.url ?? '').split('?')[0];
    const asset = assets.get(path);
    const refusal = !isOwnHost(request.headers.host) ? 403 : request.method !== 'GET' ? 405 : asset || path === '/events' ? 0 : 404;
    if (refusal) {
      response.writeHead(refusal, { ...HEADERS, ...(refusal === 405 ? { Allow: 'GET' } : {}) }).end();
    } else if (asset) {
      response.writeHead(200, { ...HEADERS, 'Content-Type': asset.type, 'Content-Length': asset.body.length }).end(asset.body);
    } else if (clients.size >= MAX_CLIENTS) {
      response.writeHead(503, HEADERS).end();
    } else {
      response.writeHead(200, { ...HEADERS, 'Content-Type': 'text/event-stream', Connection: 'close' });
      response.on('close', () => clients.delete(response));
      response.on('error', () => clients.delete(response));
      // What it gets now must not come again as news.
      send();
      clients.add(response);
      response.write(run.whole());
    }
  });
  server.on('clientError', (_, socket) => socket.destroy());
  server.on('connection', (socket) => socket.unref());

  /** @type {NodeJS.Timeout | undefined} */
  let timer;
  function send() {
    clearTimeout(timer);
    timer = undefined;
    const news = run.news();
    for (const client of clients) {
      client.write(news);
      if (client.writableLength > MAX_BACKLOG) client.destroy();
    }
  }

  await new Promise((done, failed) => {
    server.once('error', (cause) => failed(new Error(`the page cannot be served on port ${port}: ${cause.message}`, { cause })));
    server.listen(port, '127.0.0.1', () => done(undefined));
  });
  server.unref();
  const { port: actual } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return {
    url: `http://127.0.0.1:${actual}/`,
    push(event) {
      run.push(event);
      timer ??= setTimeout(send, messageEvery).unref();
    },
    async close() {
      if (timer) send();
      const closed = new Promise((done) => server.close(() => done(undefined)));
      for (const client of clients) client.end();
      // A client that does not take what is left must not hold up the end.
      const late = setTimeout(() => server.closeAllConnections(), 1000);
      await closed;
      clearTimeout(late);
    },
  };
}
