// @ts-nocheck -- prototypes are changed on purpose.
/** What the addon makes for JavaScript, where prototypes and globals are not what they were. */
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { childJson } from './lib/child.mjs';

test('setters on prototypes do not run: they could call the addon with the device locked', async () => {
  const seen = await childJson(
    `
    init();
    const x = bufferOf(ramp(8), 0);
    let ran = 0;
    const set = () => { ran++; vk.waitIdle(); throw new Error('a setter'); };
    const calls = {
      initDevice: () => vk.initDevice(), listDevices: () => vk.listDevices(), getStats: () => vk.getStats(),
      getAllocatorStats: () => vk.getAllocatorStats(), getHostTiming: () => vk.getHostTiming(),
      memoryStats: () => vk.memoryStats(), dgcInfo: () => vk.dgcInfo(), shader: () => vk.shaders[Object.keys(vk.shaders)[0]],
    };
    const names = new Set(['close', 'stop', 'call', 'value', 'argument', 'stack', 'once']);
    const collect = (value) => {
      if (value === null || typeof value !== 'object' || ArrayBuffer.isView(value)) return;
      for (const key of Object.keys(value)) { if (!Array.isArray(value)) names.add(key); collect(value[key]); }
    };
    const before = {};
    for (const [name, call] of Object.entries(calls)) collect(before[name] = call());
    const traps = (set) => {
      for (const name of names) if (!(name in Object.prototype)) Object.defineProperty(Object.prototype, name, { __proto__: null, set, configurable: true });
      for (const i of [0, 1, 2]) Object.defineProperty(Array.prototype, i, { __proto__: null, set, configurable: true });
    };
    traps(set);
    const shapes = {};
    let thrown, rejected;
    try {
      for (const [name, call] of Object.entries(calls)) shapes[name] = Object.getOwnPropertyNames(call()).length;
      vk.watchNan(x).close();
      try { vk.readBuffer(-1); } catch (error) { thrown = error; }
      rejected = await vk.readAsync(-1).catch((error) => error);
    } finally {
      for (const name of names) if (Object.getOwnPropertyDescriptor(Object.prototype, name)?.set === set) delete Object.prototype[name];
      for (const i of [0, 1, 2]) delete Array.prototype[i];
    }
    for (const name of Object.keys(calls)) assert.equal(shapes[name], Object.getOwnPropertyNames(before[name]).length, name);
    for (const error of [thrown, rejected]) assert.equal(error.code, 'ERR_HELIOS_INVALID_HANDLE');
    assert.equal(thrown.call, 'readBuffer');
    process.stdout.write(JSON.stringify({ ran, names: names.size }));
  `,
    { timeout: 600_000 },
  );
  assert.equal(seen.ran, 0);
  assert.ok(seen.names > 100, `${seen.names} names`);
});

test('a getter that throws leaves nothing half done', async () => {
  await childJson(`
    init();
    const x = bufferOf(ramp(8), 0);
    const { Symbol } = globalThis;
    Object.defineProperty(globalThis, 'Symbol', { configurable: true, get() { throw new Error('no symbols'); } });
    let session, watch, listener;
    try {
      session = vk.profileStart();
      watch = vk.watchNan(x);
      listener = vk.onMemoryPressure(0.5, () => {});
    } finally {
      Object.defineProperty(globalThis, 'Symbol', { configurable: true, writable: true, value: Symbol });
    }
    assert.ok(session.stop());
    watch.close();
    listener.close();
    vk.profileStart()[Symbol.dispose ?? 'stop']();
  `);
});

test('the compiler refuses a Node-API status that nothing looks at', () => {
  const source = new URL('../src/', import.meta.url);
  assert.match(readFileSync(new URL('api/mod.rs', source), 'utf8'), /^#!\[deny\(unused_results\)\]$/m);
  for (const name of readdirSync(source, { recursive: true }).filter((name) => name.endsWith('.rs'))) {
    const text = readFileSync(new URL(name, source), 'utf8');
    assert.ok(!/allow\(unused_results\)/.test(text), name);
    assert.ok(/^api[\\/]/.test(name) || !/sys::napi_/.test(text), `${name} calls the runtime`);
    const lines = text.split('\n');
    lines.forEach((line, i) => {
      if (!/let _ =.*(unsafe|sys::napi_)/.test(line)) return;
      let comment = '';
      for (let above = i - 1; /^\s*\/\//.test(lines[above]); above--) comment = `${lines[above].replace(/^\s*\/\/\s*/, '')} ${comment}`;
      // Beyond the argument that the call is safe: why its status does not matter.
      assert.ok(comment.split(/[.:] /).length > 2, `${name}:${i + 1}: no reason`);
    });
  }
});
