// Loads the addon or a library in a process of its own, started by probe.mjs. Reports on file descriptor 3,
// as lines of JSON, the start and the outcome of each stage.

import { writeSync } from 'node:fs';
import { createRequire } from 'node:module';

/** @typedef {typeof import('../../index.js')} Native */

const require = createRequire(import.meta.url);
/** Elements of the smoke test's vectors: more than one workgroup of any device. */
const ELEMENTS = 1 << 20;

/** @param {object} message */
function tell(message) {
  writeSync(3, `${JSON.stringify(message)}\n`);
}

/**
 * @template T
 * @param {string} name
 * @param {() => T | Promise<T>} body
 * @returns {Promise<T>}
 */
async function stage(name, body) {
  tell({ begin: name });
  const result = await body();
  tell({ stage: name, result: result ?? null });
  return result;
}

/**
 * Loads the addon; reports where its binary is and which functions it has.
 * @param {string} path
 * @returns {Promise<Native>}
 */
async function load(path) {
  /** @type {any} */
  let native;
  await stage('load', () => {
    native = require(path);
    const binaries = Object.keys(require.cache).filter((file) => file.endsWith('.node'));
    const functions = Object.keys(native).filter((name) => typeof native[name] === 'function');
    return { binary: binaries.at(-1) ?? null, functions };
  });
  return native;
}

/**
 * Shared libraries of this process that look like the Vulkan loader.
 * @returns {string | null}
 */
function loadedLoader() {
  const reporter = /** @type {any} */ (process.report);
  if (!reporter) return null;
  reporter.excludeNetwork = true;
  /** @type {string[]} */
  const objects = reporter.getReport().sharedObjects ?? [];
  return objects.find((path) => /[\\/](libvulkan\.|vulkan-1\.dll|libMoltenVK\.)/i.test(path)) ?? null;
}

/**
 * Two dependent kernels on small integers, which floats hold exactly: sum = a + b, product = sum · b.
 * @param {Native} native
 */
async function compute(native) {
  const { createKernels, pack } = await import('../../kernels/index.mjs');
  const kernels = createKernels(native);
  const a = Float32Array.from({ length: ELEMENTS }, (_, i) => i % 1021);
  const b = Float32Array.from({ length: ELEMENTS }, (_, i) => (i % 509) - 254);
  const buffers = Array.from({ length: 4 }, () => native.createBuffer(a.byteLength, 0));
  const [left, right, sum, product] = buffers;
  native.uploadBuffer(left, a);
  native.uploadBuffer(right, b);
  // A value that no kernel computes, so that a kernel that did not run is seen.
  for (const buffer of [sum, product]) native.fillBuffer(buffer, a.byteLength, 0x7fc00000);
  const { packed, count } = pack(
    kernels.binary({ op: 'add', a: left, b: right, y: sum, count: ELEMENTS }),
    kernels.binary({ op: 'mul', a: sum, b: right, y: product, count: ELEMENTS }),
  );
  const start = performance.now();
  native.waitTimeline(native.batchExecuteAll(packed, count));
  const milliseconds = performance.now() - start;
  const sums = native.readBuffer(sum);
  const products = native.readBuffer(product);
  let wrong = 0;
  let first = null;
  for (let i = 0; i < ELEMENTS; i++) {
    const expected = a[i] + b[i];
    if (sums[i] === expected && products[i] === expected * b[i]) continue;
    wrong++;
    first ??= { index: i, a: a[i], b: b[i], sum: String(sums[i]), product: String(products[i]) };
  }
  for (const buffer of buffers) native.destroyBuffer(buffer);
  return { elements: ELEMENTS, wrong, first, milliseconds };
}

/**
 * Loads a shared library that is not an addon, so that the dynamic linker reports what is missing.
 * @param {string} path
 */
function openLibrary(path) {
  try {
    process.dlopen({ exports: {} }, path);
  } catch (error) {
    // The library was loaded; then Node found that it is not an addon.
    if (!/did not self-register/.test(/** @type {Error} */ (error).message)) throw error;
  }
}

const [task, target] = process.argv.slice(2);
try {
  if (task === 'library') {
    await stage('library', () => openLibrary(target));
  } else {
    const native = await load(target);
    if (task === 'devices') await stage('listDevices', () => native.listDevices());
    if (task === 'smoke') {
      await stage('initDevice', () => native.initDevice());
      await stage('loader', loadedLoader);
      await stage('compute', () => compute(native));
      await stage('destroy', () => native.destroy());
    }
  }
  tell({ complete: true });
} catch (error) {
  const { name, code, message, platform, attempts } = /** @type {Error & { code?: string, platform?: string, attempts?: string[] }} */ (
    error
  );
  // The doctor says what to do about a missing binary.
  const text = attempts ? `no native binary for ${platform}: ${attempts.join('; ')}` : message;
  tell({ error: { name: name ?? 'Error', code: code ?? null, message: text || String(error) } });
  process.exitCode = 1;
}
