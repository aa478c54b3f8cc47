// OpenAI's HTTP interface to a model of this machine.

import { createHash, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';

import { decoded } from '../address.mjs';
import { checkNames } from '../infer/options.mjs';
import { answerChat, answerCompletion, answerEmbeddings, sendJson } from './answers.mjs';
import { ApiError, toldOf } from './fields.mjs';
import { answerResponse } from './responses.mjs';

/** @typedef {import('node:http').IncomingMessage} IncomingMessage */
/** @typedef {import('node:http').ServerResponse} ServerResponse */

/**
 * @typedef {object} ServeOptions
 * @property {number} [port] 8080 when left out; 0: a free one
 * @property {string} [host] the address to listen on; 127.0.0.1 when left out
 * @property {string} [name] of the model, in requests and answers; `model` when left out. Each of its adapters is a model by its own name
 * @property {string} [apiKey] what clients must send; none when left out
 * @property {number} [queue] sequences that wait for a slot at most; 64 when left out. Beyond it requests get the status 429
 * @property {string} [cors] an origin whose pages may ask, or `*`; none when left out
 * @property {(line: string) => void} [log] called with a line a request
 */

/** Bytes of a body: several times the longest context as text. */
const MAX_BODY = 8 * 2 ** 20;
const MAX_CONNECTIONS = 1024;
/** Milliseconds that a client has to take the end of an answer, which is in memory until then. */
const LAST_READ = 60_000;

/** Names of this machine. A page of another site that has its name point here sends that name. */
const LOCAL = /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/i;
const isLoopback = (/** @type {string} */ host) => /^(localhost|127(\.\d+){3}|::1)$/i.test(host);

const ROUTES = /** @type {const} */ ({
  '/v1/chat/completions': answerChat,
  '/v1/completions': answerCompletion,
  '/v1/responses': answerResponse,
  '/v1/embeddings': answerEmbeddings,
});

const sha256 = (/** @type {string} */ text) => createHash('sha256').update(text).digest();

/**
 * Serves a model: `/v1/models`, `/v1/chat/completions`, `/v1/completions`, `/v1/responses`, `/v1/embeddings` and `/health`.
 * @param {import('../infer/model.mjs').LanguageModel | Promise<import('../infer/model.mjs').LanguageModel>} loading the model, which stays the
 *   caller's. While it is being loaded, requests get the status 503, and so they do for good if that fails
 * @param {ServeOptions} [options]
 * @returns {Promise<{ url: string, port: number, pending: () => number, close: () => Promise<void> }>} `pending`: sequences under way and waiting;
 *   `close`: takes no more requests, ends when those under way are answered
 * @throws {Error} where it cannot listen; {RangeError} for an unknown option
 */
export async function serveModel(loading, options = {}) {
  checkNames(options, ['port', 'host', 'name', 'apiKey', 'queue', 'cors', 'log']);
  const { port = 8080, host = '127.0.0.1', name = 'model', apiKey, queue = 64, cors, log = () => {} } = options;
  const created = Math.floor(Date.now() / 1000);
  const key = apiKey === undefined ? undefined : sha256(`Bearer ${apiKey}`);
  let pending = 0;
  let closing = false;
  /** What requests need of the model, once it is loaded. @type {import('./answers.mjs').Service | undefined} */
  let service;
  const serve = (/** @type {import('../infer/model.mjs').LanguageModel} */ model) => {
    const places = model.slots + queue;
    service = { model, name, places, admit: (count) => admit(count, places) };
  };
  if (loading instanceof Promise) loading.then(serve, () => {});
  else serve(loading);

  /** @param {number} count sequences @param {number} places */
  function admit(count, places) {
    if (pending + count > places) {
      const message = `the queue is full: ${pending} sequences are written or wait, of at most ${places}`;
      throw new ApiError(429, message, { type: 'rate_limit_error', code: 'queue_full', headers: { 'Retry-After': '1' } });
    }
    pending += count;
    return () => void (pending -= count);
  }

  /** Refuses what must not be answered at all, before the body is read. @param {IncomingMessage} request @param {ServerResponse} response */
  function checkSender({ headers }, response) {
    const { host: named = '', origin } = headers;
    if (isLoopback(host) && !LOCAL.test(named)) {
      throw new ApiError(403, `the server is for this machine alone, and not for ${named || 'a request without Host'}`, {
        code: 'host_not_allowed',
      });
    }
    if (origin === undefined) return;
    if (cors === '*' || cors === origin) {
      response.setHeader('Access-Control-Allow-Origin', cors);
      response.setHeader('Vary', 'Origin');
    } else if (origin !== `http://${named}`)
      throw new ApiError(403, `pages of ${origin} may not ask: see --cors`, { code: 'origin_not_allowed' });
  }

  /** @param {IncomingMessage} request @param {ServerResponse} response @param {import('./answers.mjs').Counts} counts */
  async function answer(request, response, counts) {
    const { method = '', url = '', headers } = request;
    const path = url.split('?')[0];
    checkSender(request, response);
    if (method === 'OPTIONS' && headers['access-control-request-method']) {
      const allowed = { 'Access-Control-Allow-Methods': 'GET, POST', 'Access-Control-Allow-Headers': 'Authorization, Content-Type, *' };
      response.writeHead(204, { ...allowed, 'Access-Control-Max-Age': '600' }).end();
      return;
    }
    if (closing) throw new ApiError(503, 'the server is closing', { type: 'server_error', code: 'closing' });
    if (path === '/health' && service) {
      checkMethod(method, 'GET');
      return sendJson(response, 200, { status: 'ok', slots: service.model.slots, pending, places: service.places });
    }
    if (!service) {
      throw new ApiError(503, 'the model is being loaded', { type: 'server_error', code: 'loading', headers: { 'Retry-After': '1' } });
    }
    if (key && !timingSafeEqual(sha256(headers.authorization ?? ''), key)) {
      throw new ApiError(401, 'the API key is missing or wrong', { code: 'invalid_api_key', headers: { 'WWW-Authenticate': 'Bearer' } });
    }
    const { adapters, context } = service.model;
    const entryOf = (/** @type {string} */ id) => ({
      ...{ id, object: 'model', created, owned_by: 'helios-lm', context_length: context },
      ...(id === name ? {} : { parent: name }),
    });
    if (path === '/v1/models') {
      checkMethod(method, 'GET');
      return sendJson(response, 200, { object: 'list', data: [name, ...adapters].map(entryOf) });
    }
    if (path.startsWith('/v1/models/')) {
      checkMethod(method, 'GET');
      return sendJson(response, 200, entryOf(checkModel(decoded(path.slice('/v1/models/'.length)), adapters)));
    }
    if (!Object.hasOwn(ROUTES, path)) throw new ApiError(404, `there is no ${path}`, { code: 'unknown_url' });
    checkMethod(method, 'POST');
    const body = await readBody(request);
    const asked = checkModel(body.model ?? name, adapters);
    const adapter = asked === name ? undefined : asked;
    const left = new AbortController();
    // The client has gone: its slots are free for others.
    response.on('close', () => response.writableFinished || left.abort());
    if (request.destroyed && !request.complete) left.abort();
    await ROUTES[/** @type {keyof typeof ROUTES} */ (path)](service, { body, adapter, response, signal: left.signal, counts });
  }

  /** @param {unknown} asked @param {string[]} adapters @returns {string} the name that was asked for */
  function checkModel(asked, adapters) {
    const known = [name, ...adapters];
    const found = known.find((each) => each === asked);
    if (found !== undefined) return found;
    const shown = typeof asked === 'string' ? asked.slice(0, 100) : typeof asked;
    throw new ApiError(404, `the model ${shown} does not exist; there ${known.length > 1 ? 'are' : 'is'} ${known.join(', ')}`, {
      param: 'model',
      code: 'model_not_found',
    });
  }

  const server = createServer({ requestTimeout: 60_000, headersTimeout: 20_000 }, async (request, response) => {
    const began = performance.now();
    const counts = { prompt: 0, completion: 0 };
    response.on('error', () => {});
    try {
      await answer(request, response, counts);
    } catch (error) {
      refuse(request, response, error, log);
    }
    if (!response.writableFinished && !response.destroyed) {
      const late = setTimeout(() => response.destroy(), LAST_READ).unref();
      response.on('close', () => clearTimeout(late));
    }
    const status = response.writableEnded ? response.statusCode : 'closed';
    const seconds = ((performance.now() - began) / 1000).toFixed(2);
    const tokens = counts.prompt > 0 ? ` ${counts.prompt} + ${counts.completion} tokens` : '';
    log(`${new Date().toISOString()} ${request.method} ${printable(request.url)} ${status}${tokens} ${seconds} s`);
    if (closing) setImmediate(() => server.closeIdleConnections());
  });
  server.maxConnections = MAX_CONNECTIONS;
  server.on('clientError', (error, socket) => {
    const { code } = /** @type {NodeJS.ErrnoException} */ (error);
    if (code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
    const [status, words] = code === 'HPE_HEADER_OVERFLOW' ? [431, 'Request Header Fields Too Large'] : [400, 'Bad Request'];
    const text = JSON.stringify(new ApiError(Number(status), 'this is not a request of HTTP/1.1'));
    const head = `HTTP/1.1 ${status} ${words}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n`;
    socket.end(`${head}Connection: close\r\n\r\n${text}`);
  });

  await new Promise((done, failed) => {
    server.once('error', (cause) => failed(new Error(`cannot listen on ${host}:${port}: ${cause.message}`, { cause })));
    server.listen(port, host, () => done(undefined));
  });
  const { port: actual, family, address } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return {
    url: `http://${family === 'IPv6' ? `[${address}]` : address}:${actual}`,
    port: actual,
    pending: () => pending,
    close() {
      closing = true;
      const closed = new Promise((/** @type {(_: void) => void} */ done) => server.close(() => done()));
      server.closeIdleConnections();
      return closed;
    },
  };
}

/** @param {string} method @param {string} wanted */
function checkMethod(method, wanted) {
  if (method === wanted) return;
  throw new ApiError(405, `the method must be ${wanted}, got ${method}`, { code: 'method_not_allowed', headers: { Allow: wanted } });
}

/** What a client has written, for a line of a log. @param {string} [text] */
const printable = (text = '') => text.slice(0, 100).replaceAll(/[^\x20-\x7e]/g, '?');

/** @param {IncomingMessage} request @returns {Promise<import('./fields.mjs').Body>} */
async function readBody(request) {
  const { headers } = request;
  if (!/^application\/([\w.+-]+\+)?json\b/i.test(headers['content-type'] ?? '')) {
    throw new ApiError(415, `Content-Type must be application/json, got ${headers['content-type']?.slice(0, 60) ?? 'none'}`);
  }
  const tooLarge = () => new ApiError(413, `the body must have at most ${MAX_BODY} bytes`, { code: 'body_too_large' });
  if (Number(headers['content-length'] ?? 0) > MAX_BODY) throw tooLarge();
  const chunks = [];
  let bytes = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    bytes += chunk.length;
    if (bytes > MAX_BODY) throw tooLarge();
    chunks.push(chunk);
  }
  let body;
  try {
    body = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks)));
  } catch (error) {
    throw new ApiError(400, `the body is not JSON in UTF-8: ${/** @type {Error} */ (error).message.slice(0, 200)}`, {
      code: 'invalid_json',
    });
  }
  if (typeof body !== 'object' || body === null || Array.isArray(body)) throw new ApiError(400, 'the body must be an object of JSON');
  return body;
}

/** Answers with an error. @param {IncomingMessage} request @param {ServerResponse} response @param {unknown} error @param {(line: string) => void} log */
function refuse(request, response, error, log) {
  const { destroyed } = response;
  const known = toldOf(error);
  if (error !== known && !destroyed) log(`${printable(request.url)}: ${/** @type {Error} */ (error)?.stack ?? error}`);
  if (destroyed || response.writableEnded) return;
  if (response.headersSent) {
    response.end(`data: ${JSON.stringify(known)}\n\n`);
    return;
  }
  // A body that was not read to its end would be taken for the next request.
  const headers = request.complete ? known.headers : { ...known.headers, Connection: 'close' };
  sendJson(response, known.status, known, headers);
}
