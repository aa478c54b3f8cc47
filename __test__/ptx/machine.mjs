// Runs the PTX that kernels/hopper/ writes, block after block, warp by warp, in an order drawn from a seed. Of what the
// hardware leaves open it takes the side that shows mistakes: with `late`, copies and products happen only when a wait
// demands them, so that a stage or a register that is overwritten too early gives a wrong result. It fails on accesses
// that are out of bounds or unaligned, on branches that diverge, on shared memory that `wgmma` reads without a proxy fence
// after the writes, on deadlocks, and on barriers left half arrived at. Only what the kernels use is there.

import assert from 'node:assert/strict';

import { fromBf16, fromF16, toBf16, toF16 } from '../lib/half.mjs';

const LANES = 32;
const BLOCKED = -1;
/** Device address of the first byte of memory. */
export const BASE = 0x10_0000_0000;

const word = new Uint32Array(1);
const real = new Float32Array(word.buffer);
const bits = (/** @type {number} */ x) => ((real[0] = x), word[0]);
const fromBits = (/** @type {number} */ x) => ((word[0] = x), real[0]);

/** The values of all halves, by their bits. @param {(bits: number) => number} value */
const valuesOf = (value) => Float64Array.from({ length: 65536 }, (_, bits) => value(bits));
const HALVES = { bf16: valuesOf(fromBf16), f16: valuesOf(fromF16) };
const toHalf = (/** @type {number} */ x, /** @type {string} */ type) => (type === 'bf16' ? toBf16 : toF16)(x);

/**
 * Bytes that `wgmma` reads for elements (x, k) of a descriptor's matrix, by the PTX manual's canonical layouts.
 * @param {bigint} descriptor @param {boolean} transposed
 * @returns {(x: number, k: number) => number}
 */
export function descriptorAddresses(descriptor, transposed) {
  const field = (/** @type {bigint} */ shift) => Number((descriptor >> shift) & 0x3fffn) * 16;
  const [start, leading, stride] = [field(0n), field(16n), field(32n)];
  const mode = Number(descriptor >> 62n);
  assert.ok(mode > 0, 'a swizzled descriptor');
  if (transposed) assert.equal(mode, 1, 'MN-major by lines of 128 bytes');
  const line = 256 >> mode;
  const chunks = line / 16 - 1;
  return (x, k) => {
    const address = transposed
      ? start + (x >> 6) * leading + (k >> 3) * stride + (k & 7) * 128 + (x & 63) * 2
      : start + (x >> 3) * stride + (x & 7) * line + k * 2;
    return address ^ (((address >> 7) & chunks) << 4);
  };
}

/** @param {string} text of operands */
function splitOperands(text) {
  const list = [];
  let depth = 0;
  let from = 0;
  for (let i = 0; i <= text.length; i++) {
    if ('{['.includes(text[i] ?? '.')) depth++;
    else if ('}]'.includes(text[i] ?? '.')) depth--;
    else if (i === text.length || (text[i] === ',' && depth === 0)) {
      list.push(text.slice(from, i).trim());
      from = i + 1;
    }
  }
  return list.filter((operand) => operand.length > 0);
}

/** One warp of a block. */
class Warp {
  /** @param {number} id @param {number[]} block @param {Record<string, number>} counts */
  constructor(id, block, counts) {
    this.id = id;
    this.block = block;
    this.pc = 0;
    this.done = false;
    this.r = Array.from({ length: counts.r ?? 0 }, () => new Uint32Array(LANES).fill(0xdeadbeef));
    this.f = Array.from({ length: counts.f ?? 0 }, () => new Float32Array(LANES).fill(NaN));
    this.d = Array.from({ length: counts.d ?? 0 }, () => new BigUint64Array(LANES).fill(0xdeadbeefdeadbeefn));
    this.p = Array.from({ length: counts.p ?? 0 }, () => new Uint8Array(LANES));
    this.h = Array.from({ length: counts.h ?? 0 }, () => new Uint32Array(LANES));
    /** @type {{ barrier: any, generation: number } | null} */
    this.waiting = null;
    /** @type {(() => void)[][]} */
    this.products = [];
    /** @type {(() => void)[]} */
    this.product = [];
    /** @type {(() => void)[][]} */
    this.copies = [];
    /** @type {(() => void)[]} */
    this.copy = [];
    /** @type {number[]} shared memory written and not fenced, in units of four bytes */
    this.unfenced = [];
    /** When this warp's last proxy fence was. */
    this.fenced = 0;
    /** Addresses of tensor maps that a fence has made known. @type {Set<number>} */
    this.knownMaps = new Set();
  }
}

/**
 * Runs a kernel.
 * @param {string} text
 * @param {object} options
 * @param {number | readonly number[]} options.blocks of the grid, in up to three dimensions
 * @param {Uint8Array} options.parameters
 * @param {Uint8Array} options.memory at address `BASE`
 * @param {Uint8Array} [options.readable] which of its bytes may be loaded; all when left out
 * @param {boolean} options.late
 * @param {number} [options.seed]
 */
export function runPtx(text, { blocks, parameters, memory, readable, late, seed = 1 }) {
  const [blocksX, blocksY = 1, blocksZ = 1] = typeof blocks === 'number' ? [blocks] : blocks;
  const global = new DataView(memory.buffer, memory.byteOffset, memory.byteLength);
  const blockParameters = new DataView(parameters.buffer, parameters.byteOffset, parameters.byteLength);
  const threads = Number(/\.reqntid (\d+)/.exec(text)?.[1]);
  const sharedBytes = Number(/\.shared .*shared\[(\d+)\]/.exec(text)?.[1]);
  /** @type {Record<string, number>} */
  const counts = {};
  for (const [, prefix, count] of text.matchAll(/\.reg \.\w+ %(\w)<(\d+)>/g)) counts[prefix] = Number(count);

  /** @type {Map<string, number>} */
  const labels = new Map();
  /** @type {{ line: string, guard: string, op: string, operands: string[] }[]} */
  const source = [];
  for (const raw of text.slice(text.indexOf('\n{') + 2).split('\n')) {
    const line = raw.replace(/\/\/.*/, '').trim();
    if (line === '' || line === '}' || /^\.(reg|shared)/.test(line)) continue;
    const label = /^(\w+):$/.exec(line);
    if (label) {
      labels.set(label[1], source.length);
      continue;
    }
    const [, guard = '', op, rest] = /** @type {RegExpExecArray} */ (/^(?:@(!?%p\d+) )?(\S+?)(?:\s+(.*))?;$/.exec(line));
    source.push({ line, guard, op, operands: splitOperands(rest ?? '') });
  }

  let random = seed >>> 0 || 1;
  const next = () => {
    random ^= random << 13;
    random ^= random >>> 17;
    random ^= random << 5;
    return (random >>>= 0);
  };

  /** @type {DataView} */
  let shared;
  /** Warp + 1 that wrote a word of shared memory without a fence since. @type {Uint8Array} */
  let dirty;
  /** When it did. @type {Float64Array} */
  let written;
  let clock = 0;
  /** @type {Map<number, { expected: number, arrived: number, generation: number }>} */
  let barriers;
  /** Barriers in shared memory, by address. @type {Map<number, { count: number, pending: number, bytes: number, phase: number, copies: (() => void)[] }>} */
  let arrivals;
  /** Tensor maps, in shared and in global memory: their fields by name. @type {Map<string, Record<string, any>>} */
  const maps = new Map();

  /** @param {string} operand @returns {(warp: Warp, lane: number) => any} */
  const read = (operand) => {
    const register = /^%([rfdph])(\d+)$/.exec(operand);
    if (register) {
      const [kind, i] = [/** @type {'r'} */ (register[1]), Number(register[2])];
      return (w, l) => w[kind][i][l];
    }
    if (operand === '%tid.x') return (w, l) => w.id * LANES + l;
    if (/^%ctaid\.[xyz]$/.test(operand)) return (w) => w.block['xyz'.indexOf(operand[7])];
    if (operand === '%nctaid.x') return () => blocksX;
    if (operand === 'shared') return () => 0;
    const single = /^0f([0-9A-F]{8})$/.exec(operand);
    const value = single ? fromBits(parseInt(single[1], 16)) : Number(operand);
    assert.ok(single || Number.isInteger(value), `operand ${operand}`);
    return () => value;
  };
  /** @param {string} operand @returns {(warp: Warp, lane: number, value: any) => void} */
  const write = (operand) => {
    const [, kind, i] = /** @type {RegExpExecArray} */ (/^%([rfdph])(\d+)$/.exec(operand));
    return (w, l, value) => {
      w[/** @type {'r'} */ (kind)][Number(i)][l] = value;
    };
  };
  /**
   * An operand of all lanes: a register itself, or a copy of what `read` says.
   * @param {string} operand @returns {(warp: Warp) => ArrayLike<any>}
   */
  const readAll = (operand) => {
    const register = /^%([rfdph])(\d+)$/.exec(operand);
    if (register) {
      const [kind, i] = [/** @type {'r'} */ (register[1]), Number(register[2])];
      return (w) => w[kind][i];
    }
    const value = read(operand);
    if (operand.startsWith('%')) return (w) => Array.from({ length: LANES }, (_, l) => value(w, l));
    const constant = new Array(LANES).fill(value(/** @type {any} */ (undefined), 0));
    return () => constant;
  };
  const members = (/** @type {string} */ operand) => (operand.startsWith('{') ? splitOperands(operand.slice(1, -1)) : [operand]);
  /** @param {string} operand */
  const address = (operand) => {
    const [, register, offset] = /** @type {RegExpExecArray} */ (/^\[(\S+?)(?:\+(\d+))?\]$/.exec(operand));
    const value = register === 'block' ? () => 0 : read(register);
    return (/** @type {Warp} */ w, /** @type {number} */ l) => Number(value(w, l)) + Number(offset ?? 0);
  };
  // A message is put together only where it is needed: these run for every access.
  const inGlobal = (/** @type {number} */ a, /** @type {number} */ bytes) => {
    const offset = a - BASE;
    if (!(offset >= 0 && offset + bytes <= memory.byteLength && offset % bytes === 0))
      assert.fail(`global access of ${bytes} bytes at ${a.toString(16)}`);
    return offset;
  };
  const mayRead = (/** @type {number} */ offset, /** @type {number} */ bytes) => {
    if (readable && !(readable[offset] && readable[offset + bytes - 1]))
      assert.fail(`a load outside of the operands, at ${(BASE + offset).toString(16)}`);
  };
  const inShared = (/** @type {number} */ a, /** @type {number} */ bytes) => {
    if (!(a >= 0 && a + bytes <= sharedBytes && a % bytes === 0)) assert.fail(`shared access of ${bytes} bytes at ${a}`);
    return a;
  };
  const touch = (/** @type {Warp} */ w, /** @type {number} */ a, /** @type {number} */ bytes) => {
    for (let i = a >> 2; i < (a + bytes) >> 2; i++) {
      dirty[i] = w.id + 1;
      written[i] = ++clock;
      w.unfenced.push(i);
    }
  };

  const integer = /** @type {Record<string, (x: number, y: number, z: number) => number>} */ ({
    add: (x, y) => x + y,
    sub: (x, y) => x - y,
    mul: (x, y) => Math.imul(x, y),
    mad: (x, y, z) => Math.imul(x, y) + z,
    min: (x, y) => Math.min(x, y),
    max: (x, y) => Math.max(x, y),
    div: (x, y) => (assert.ok(y > 0, 'division by zero'), Math.floor(x / y)),
    rem: (x, y) => (assert.ok(y > 0), x % y),
    and: (x, y) => x & y,
    or: (x, y) => x | y,
    xor: (x, y) => x ^ y,
    shl: (x, y) => x << y,
    shr: (x, y) => x >>> y,
  });
  const floating = /** @type {Record<string, (x: number, y: number, z: number) => number>} */ ({
    add: (x, y) => x + y,
    sub: (x, y) => x - y,
    mul: (x, y) => x * y,
    fma: (x, y, z) => x * y + z,
    div: (x, y) => x / y,
    max: (x, y) => (Number.isNaN(x) ? y : Number.isNaN(y) ? x : Math.max(x, y)),
    ex2: (x) => 2 ** x,
    'min.NaN': (x, y) => Math.min(x, y),
    'max.NaN': (x, y) => Math.max(x, y),
    lg2: Math.log2,
    rcp: (x) => 1 / x,
    neg: (x) => -x,
    abs: Math.abs,
    copysign: (x, y) => (bits(x) >>> 31 ? -Math.abs(y) : Math.abs(y)),
  });
  const compare = /** @type {Record<string, (x: number, y: number) => boolean>} */ ({
    lt: (x, y) => x < y,
    le: (x, y) => x <= y,
    ge: (x, y) => x >= y,
    gt: (x, y) => x > y,
    eq: (x, y) => x === y,
    ne: (x, y) => x !== y,
  });

  /**
   * An instruction as a function of a warp, which returns where to go on, `BLOCKED`, or nothing.
   * @param {typeof source[number]} instruction
   * @returns {(warp: Warp) => number | void}
   */
  function compile({ guard, op, operands }) {
    const parts = op.split('.');
    const type = parts[parts.length - 1];
    const predicate = guard ? read(guard.replace('!', '')) : undefined;
    const negated = guard.startsWith('!');
    const active = (/** @type {Warp} */ w, /** @type {number} */ l) => !predicate || Boolean(predicate(w, l)) !== negated;
    const lanes = (/** @type {(w: Warp, l: number) => void} */ body) => (/** @type {Warp} */ w) => {
      for (let l = 0; l < LANES; l++) if (active(w, l)) body(w, l);
    };
    const uniform = (/** @type {string} */ operand) => {
      const value = read(operand);
      return (/** @type {Warp} */ w) => {
        const first = value(w, 0);
        for (let l = 1; l < LANES; l++) if (value(w, l) !== first) assert.fail(`${op} ${operand} differs within a warp`);
        return first;
      };
    };
    if (op === 'bra.uni') {
      const target = /** @type {number} */ (labels.get(operands[0]));
      return (w) => {
        let taken = 0;
        for (let l = 0; l < LANES; l++) taken += active(w, l) ? 1 : 0;
        assert.ok(taken === 0 || taken === LANES, 'a branch diverges');
        return taken ? target : undefined;
      };
    }
    if (op === 'ret') return (w) => void (w.done = true);
    if (parts[0] === 'setmaxnreg') return () => {};
    if (op.startsWith('fence.proxy.async')) {
      return (w) => {
        for (const i of w.unfenced) if (dirty[i] === w.id + 1) dirty[i] = 0;
        w.unfenced = [];
        w.fenced = ++clock;
      };
    }
    if (parts[0] === 'bar' && parts[1] !== 'warp') {
      const [id, count] = [uniform(operands[0]), uniform(operands[1])];
      return (w) => {
        if (w.waiting) {
          if (w.waiting.barrier.generation === w.waiting.generation) return BLOCKED;
          w.waiting = null;
          return undefined;
        }
        const number = id(w);
        assert.ok(number >= 0 && number < 16, `barrier ${number}`);
        const barrier = barriers.get(number) ?? { expected: 0, arrived: 0, generation: 0 };
        barriers.set(number, barrier);
        if (barrier.arrived > 0) assert.equal(barrier.expected, count(w), `threads of barrier ${number}`);
        barrier.expected = count(w);
        barrier.arrived += LANES;
        assert.ok(barrier.arrived <= barrier.expected);
        const generation = barrier.generation;
        if (barrier.arrived === barrier.expected) {
          barrier.arrived = 0;
          barrier.generation++;
          return undefined;
        }
        if (parts[1] === 'arrive') return undefined;
        w.waiting = { barrier, generation };
        return BLOCKED;
      };
    }
    if (op === 'bar.warp.sync' || parts[0] === 'fence') {
      assert.match(op, /^bar\.warp|^fence\.(mbarrier_init|proxy\.tensormap)/);
      const map = parts[2]?.startsWith('tensormap') ? address(operands[0]) : undefined;
      return (w) => void (map && w.knownMaps.add(map(w, 0)));
    }
    if (op.startsWith('cp.async.bulk.prefetch') || op.startsWith('prefetch.')) return () => {};
    if (parts[0] === 'mbarrier') return compileArrival(parts, operands, lanes);
    if (parts[0] === 'tensormap' || op.startsWith('cp.async.bulk')) return compileTensorCopy(parts, operands, lanes);
    if (parts[0] === 'wgmma') return compileProduct(parts, operands, uniform);
    if (parts[0] === 'cp') {
      if (parts[2] === 'commit_group') return (w) => void (w.copies.push(w.copy), (w.copy = []));
      if (parts[2] === 'wait_group') {
        return (w) => {
          while (w.copies.length > Number(operands[0])) for (const copy of /** @type {(() => void)[]} */ (w.copies.shift())) copy();
        };
      }
      const whole = Number(operands[2]);
      assert.ok(whole === 16 || (whole === 4 && parts[2] === 'ca'), `${op} of ${whole} bytes`);
      const [to, from, size] = [address(operands[0]), address(operands[1]), read(operands[3] ?? operands[2])];
      return lanes((w, l) => {
        const [target, bytes] = [inShared(to(w, l), whole), size(w, l)];
        const origin = bytes === 0 ? 0 : inGlobal(from(w, l), whole);
        if (bytes !== 0) mayRead(origin, whole);
        const copy = () => {
          for (let i = 0; i < whole; i++) shared.setUint8(target + i, i < bytes ? memory[origin + i] : 0);
          touch(w, target, whole);
        };
        if (late) w.copy.push(copy);
        else copy();
      });
    }
    if (parts[0] === 'ld' || parts[0] === 'st') {
      const load = parts[0] === 'ld';
      const places = members(operands[load ? 0 : 1]);
      const from = address(operands[load ? 1 : 0]);
      const wide = type === 'u64';
      const single = type === 'f32';
      const narrow = type === 'b16';
      const bytes = (wide ? 8 : narrow ? 2 : 4) * places.length;
      const view = () => (parts[1] === 'param' ? blockParameters : parts[1] === 'shared' ? shared : global);
      const [readers, writers] = load ? [[], places.map(write)] : [places.map(read), []];
      return lanes((w, l) => {
        const a = from(w, l);
        const offset = parts[1] === 'param' ? a : parts[1] === 'shared' ? inShared(a, bytes) : inGlobal(a, bytes);
        const memoryView = view();
        if (load && parts[1] === 'global') mayRead(offset, bytes);
        for (let i = 0; i < places.length; i++) {
          const place = offset + 4 * i;
          if (load)
            writers[i](
              w,
              l,
              wide ? memoryView.getBigUint64(place, true) : single ? memoryView.getFloat32(place, true) : memoryView.getUint32(place, true),
            );
          else if (narrow) memoryView.setUint16(place, readers[i](w, l), true);
          else if (single) memoryView.setFloat32(place, readers[i](w, l), true);
          else memoryView.setUint32(place, readers[i](w, l), true);
        }
        if (!load && parts[1] === 'shared') touch(w, offset, bytes);
      });
    }
    if (op === 'mov.b64') {
      const [low, high] = members(operands[1]).map(read);
      const put = write(operands[0]);
      return lanes((w, l) => put(w, l, (BigInt(high(w, l)) << 32n) | BigInt(low(w, l))));
    }
    if (op === 'mov.b32' && operands[0].startsWith('{')) {
      const [low, high] = members(operands[0]).map(write);
      const value = read(operands[1]);
      return lanes((w, l) => (low(w, l, value(w, l) & 0xffff), high(w, l, value(w, l) >>> 16)));
    }
    const put = write(operands[0]);
    const inputs = operands.slice(1).map(read);
    const [x, y, z] = inputs;
    const [target, columns] = [readAll(operands[0]), operands.slice(1).map(readAll)];
    /** Every lane's result by its inputs. @param {(x: any, y: any, z: any) => any} compute */
    const each = (compute) => {
      const [first, second = first, third = first] = columns;
      return (/** @type {Warp} */ w) => {
        const [to, xs, ys, zs] = [/** @type {any[]} */ (target(w)), first(w), second(w), third(w)];
        for (let l = 0; l < LANES; l++) if (!predicate || active(w, l)) to[l] = compute(xs[l], ys[l], zs[l]);
      };
    };
    if (op === 'mov.b32' && operands[0].startsWith('%f')) return each(fromBits);
    if (parts[0] === 'mov') return each((x) => x);
    if (op === 'cvt.f32.f16') return each((x) => HALVES.f16[x]);
    if (parts[0] === 'cvt') {
      const half = parts[2].slice(0, -2);
      return each((x, y) => ((toHalf(x, half) << 16) | toHalf(y, half)) >>> 0);
    }
    if (parts[0] === 'setp') {
      const [holds, joined] = [compare[parts[1]], parts[2]];
      const signed = type === 's32';
      return each((x, y, z) => {
        const result = signed ? holds(x | 0, y | 0) : holds(x, y);
        return (joined === 'or' ? result || z : result && (joined !== 'and' || z)) ? 1 : 0;
      });
    }
    if (op === 'shfl.sync.bfly.b32') {
      const mask = Number(operands[2]);
      return (w) => {
        const values = Array.from({ length: LANES }, (_, l) => x(w, l ^ mask));
        values.forEach((value, l) => put(w, l, value));
      };
    }
    if (parts[0] === 'movmatrix') {
      return (w) => {
        const rows = Array.from({ length: LANES }, (_, l) => x(w, l));
        const at = (/** @type {number} */ row, /** @type {number} */ column) =>
          (rows[4 * row + (column >> 1)] >>> (16 * (column & 1))) & 0xffff;
        for (let l = 0; l < LANES; l++) put(w, l, (at(2 * (l & 3), l >> 2) | (at(2 * (l & 3) + 1, l >> 2) << 16)) >>> 0);
      };
    }
    if (op === 'and.pred') return each((x, y) => x & y);
    if (parts[0] === 'selp') return each((x, y, z) => (z ? x : y));
    if (op === 'mad.wide.u32') return lanes((w, l) => put(w, l, BigInt(x(w, l)) * BigInt(y(w, l)) + z(w, l)));
    if (op === 'mul.wide.u32') return lanes((w, l) => put(w, l, BigInt(x(w, l)) * BigInt(y(w, l))));
    if (op === 'mul.lo.u64') return lanes((w, l) => put(w, l, x(w, l) * BigInt(y(w, l))));
    if (op === 'and.b64') return lanes((w, l) => put(w, l, x(w, l) & BigInt.asUintN(64, BigInt(operands[2]))));
    if (op === 'add.u64') return lanes((w, l) => put(w, l, x(w, l) + BigInt(y(w, l))));
    const table = type === 'f32' ? floating : integer;
    const name = parts[1] === 'NaN' ? `${parts[0]}.NaN` : parts[0];
    assert.ok(name in table, `no instruction ${op}`);
    return each(table[name]);
  }

  /** Barriers in shared memory; `try_wait` suspends until the phase is over. @param {string[]} parts @param {string[]} operands @param {(body: (w: Warp, l: number) => void) => (w: Warp) => void} lanes @returns {(warp: Warp) => number | void} */
  function compileArrival(parts, operands, lanes) {
    const settle = (/** @type {any} */ barrier) => {
      if (barrier.pending > 0 || barrier.bytes > 0) return;
      barrier.pending = barrier.count;
      barrier.phase++;
    };
    const find = (/** @type {number} */ at) => {
      const barrier = arrivals.get(inShared(at, 8));
      assert.ok(barrier, `no mbarrier at ${at}`);
      return barrier;
    };
    if (parts[1] === 'init') {
      const [at, count] = [address(operands[0]), Number(operands[1])];
      return lanes((w, l) => void arrivals.set(inShared(at(w, l), 8), { count, pending: count, bytes: 0, phase: 0, copies: [] }));
    }
    if (parts[1] === 'arrive') {
      assert.equal(parts[2], 'expect_tx');
      const [at, bytes] = [address(operands[1]), read(operands[2])];
      return lanes((w, l) => {
        const barrier = find(at(w, l));
        barrier.bytes += bytes(w, l);
        barrier.pending--;
        settle(barrier);
      });
    }
    assert.equal(`${parts[1]}.${parts[2]}`, 'try_wait.parity');
    const [put, at, parity] = [write(operands[0]), address(operands[1]), read(operands[2])];
    return (/** @type {Warp} */ w) => {
      const barrier = find(at(w, 0));
      for (const copy of barrier.copies.splice(0)) copy();
      settle(barrier);
      if ((barrier.phase & 1) === (parity(w, 0) & 1)) return BLOCKED;
      for (let l = 0; l < LANES; l++) put(w, l, 1);
      return undefined;
    };
  }

  /** Tensor maps, and copies by them. @param {string[]} parts @param {string[]} operands @param {(body: (w: Warp, l: number) => void) => (w: Warp) => void} lanes */
  function compileTensorCopy(parts, operands, lanes) {
    if (parts[1] === 'replace') {
      const [at, field] = [address(operands[0]), parts[3]];
      const [ordinal, value] = [operands.length > 2 ? operands[1] : '', read(operands[operands.length - 1])];
      return lanes((w, l) => {
        const key = `shared ${inShared(at(w, l), 128)}`;
        for (let i = 0; i < 128 && !maps.has(key); i += 4) assert.equal(shared.getUint32(at(w, l) + i, true), 0, 'a new map is zeros');
        maps.set(key, { ...maps.get(key), [field + ordinal]: Number(value(w, l)) });
      });
    }
    if (parts[1] === 'cp_fenceproxy') {
      const [to, from] = [address(operands[0]), address(operands[1])];
      return (/** @type {Warp} */ w) => {
        inGlobal(to(w, 0), 128);
        maps.set(`global ${to(w, 0)}`, /** @type {any} */ (maps.get(`shared ${from(w, 0)}`)));
      };
    }
    const [to, map, barrierAt] = [address(operands[0]), operands[1].slice(1, -1), address(operands[2])];
    const [mapRegister, list] = splitOperands(map);
    const [mapAt, coordinates] = [read(mapRegister), members(list).map(read)];
    return lanes((w, l) => {
      assert.ok(w.knownMaps.has(Number(mapAt(w, l))), 'a tensor map without its fence');
      const fields = /** @type {Record<string, number>} */ (maps.get(`global ${mapAt(w, l)}`));
      const { global_address: base, rank, elemtype, interleave_layout, swizzle_mode, fill_mode } = fields;
      const dimensions = rank + 1;
      assert.deepEqual([dimensions, elemtype, interleave_layout, fill_mode], [Number(parts[4][0]), 1, 0, 0]);
      assert.ok(swizzle_mode === 2 || swizzle_mode === 3);
      // Bytes of a line, over which chunks of 16 are permuted, and of a period of this.
      const [line, period] = swizzle_mode === 3 ? [128, 1024] : [64, 512];
      const of = (/** @type {string} */ name, /** @type {number} */ count) => Array.from({ length: count }, (_, i) => fields[name + i]);
      const [box, extents, strides] = [of('box_dim', dimensions), of('global_dim', dimensions), [2, ...of('global_stride', rank)]];
      assert.ok(extents.every((extent) => extent > 0));
      assert.ok(strides.slice(1).every((stride) => stride % 16 === 0) && base % 16 === 0 && 2 * box[0] === line);
      assert.ok(of('element_stride', dimensions).every((stride) => stride === 1));
      const [start, place] = [coordinates.map((c) => c(w, l)), inShared(to(w, l), period)];
      const barrier = arrivals.get(barrierAt(w, l));
      assert.ok(barrier);
      const count = box.reduce((x, y) => x * y, 1);
      inShared(place + 2 * count - 2, 2);
      const copy = () => {
        for (let i = 0; i < count; i++) {
          let [rest, from, inside] = [i, base, true];
          box.forEach((size, d) => {
            const x = start[d] + (rest % size);
            rest = Math.floor(rest / size);
            from += x * strides[d];
            inside &&= x < extents[d];
          });
          const offset = inside ? inGlobal(from, 2) : 0;
          if (inside) mayRead(offset, 2);
          const linear = place + 2 * i;
          const at = linear ^ (((linear >> 7) & (line / 16 - 1)) << 4);
          shared.setUint16(at, inside ? global.getUint16(offset, true) : 0, true);
          dirty[at >> 2] = 0;
        }
        barrier.bytes -= 2 * count;
      };
      // Sooner or later: a stage that is filled while it is read is wrong by the one, one that is read before it is full by the other.
      if (late && next() & 1) barrier.copies.push(copy);
      else {
        copy();
        if (barrier.pending === 0 && barrier.bytes === 0) {
          barrier.pending = barrier.count;
          barrier.phase++;
        }
      }
    });
  }

  /** @param {string[]} parts @param {string[]} operands @param {(operand: string) => (w: Warp) => any} uniform @returns {(warp: Warp) => void} */
  function compileProduct(parts, operands, uniform) {
    if (parts[1] === 'fence') return () => {};
    if (parts[1] === 'commit_group') return (w) => void (w.products.push(w.product), (w.product = []));
    if (parts[1] === 'wait_group') {
      return (w) => {
        while (w.products.length > Number(operands[0])) for (const product of /** @type {(() => void)[]} */ (w.products.shift())) product();
      };
    }
    const columns = Number(/n(\d+)k16/.exec(parts[4])?.[1]);
    const half = parts[6];
    const sums = members(operands[0]).map((register) => Number(register.slice(2)));
    assert.equal(sums.length, columns / 2);
    const inRegisters = operands[1].startsWith('{');
    const fragments = inRegisters ? members(operands[1]).map((register) => Number(register.slice(2))) : [];
    const a = inRegisters ? undefined : uniform(operands[1]);
    const b = uniform(operands[2]);
    const accumulates = uniform(operands[3]);
    const transposedA = !inRegisters && operands[6] === '1';
    const transposedB = operands[inRegisters ? 6 : 7] === '1';
    const halves = HALVES[/** @type {'bf16'} */ (half)];
    /** The elements of a matrix in shared memory. @param {number} fenced @param {bigint} descriptor @param {boolean} transposed */
    const elements = (fenced, descriptor, transposed) => {
      const place = descriptorAddresses(descriptor, transposed);
      return (/** @type {number} */ x, /** @type {number} */ k) => {
        const at = inShared(place(x, k), 2);
        if (dirty[at >> 2] !== 0 && written[at >> 2] >= fenced)
          assert.fail('wgmma reads shared memory without a proxy fence after its writes');
        return halves[shared.getUint16(at, true)];
      };
    };
    return (w) => {
      const [descriptorA, descriptorB, keep, fenced] = [a?.(w), b(w), accumulates(w), w.fenced];
      const product = () => {
        const left = new Float64Array(16 * 16);
        const row0 = (w.id % 4) * 16;
        if (inRegisters) {
          for (let l = 0; l < LANES; l++) {
            for (let i = 0; i < 4; i++) {
              const value = w.r[fragments[i]][l];
              const at = ((l >> 2) + 8 * (i & 1)) * 16 + 2 * (l & 3) + 8 * (i >> 1);
              left[at] = halves[value & 0xffff];
              left[at + 1] = halves[value >>> 16];
            }
          }
        } else {
          const ofA = elements(fenced, descriptorA, transposedA);
          for (let r = 0; r < 16; r++) for (let k = 0; k < 16; k++) left[r * 16 + k] = ofA(row0 + r, k);
        }
        const ofB = elements(fenced, descriptorB, transposedB);
        const right = new Float64Array(16);
        for (let n = 0; n < columns; n++) {
          for (let k = 0; k < 16; k++) right[k] = ofB(n, k);
          for (let r = 0; r < 16; r++) {
            let sum = 0;
            for (let k = 0; k < 16; k++) sum += left[r * 16 + k] * right[k];
            const register = w.f[sums[4 * (n >> 3) + 2 * (r >> 3) + (n & 1)]];
            const lane = 4 * (r & 7) + ((n & 7) >> 1);
            register[lane] = (keep ? register[lane] : 0) + sum;
          }
        }
        // The assembler takes the registers of a left operand for free afterwards, also where a later turn of a loop reads them.
        for (const register of fragments) w.r[register].fill(0x7fc17fc1);
      };
      if (late) w.product.push(product);
      else product();
    };
  }

  const program = source.map(compile);
  for (let number = 0; number < blocksX * blocksY * blocksZ; number++) {
    const block = [number % blocksX, Math.floor(number / blocksX) % blocksY, Math.floor(number / blocksX / blocksY)];
    shared = new DataView(new Uint8Array(sharedBytes).fill(0xff).buffer);
    dirty = new Uint8Array(sharedBytes / 4);
    written = new Float64Array(sharedBytes / 4);
    barriers = new Map();
    arrivals = new Map();
    const warps = Array.from({ length: threads / LANES }, (_, id) => new Warp(id, block, counts));
    let running = warps;
    let idle = 0;
    while (running.length > 0) {
      const warp = running[next() % running.length];
      let steps = 1 + (next() % 400);
      let moved = false;
      while (!warp.done && steps-- > 0) {
        let to;
        try {
          to = program[warp.pc](warp);
        } catch (error) {
          throw new Error(
            `block ${block}, warp ${warp.id}, ${source[warp.pc].line.slice(0, 200)}: ${/** @type {Error} */ (error).message}`,
            { cause: error },
          );
        }
        if (to === BLOCKED) break;
        moved = true;
        warp.pc = to ?? warp.pc + 1;
      }
      if (warp.done) running = running.filter((other) => other !== warp);
      idle = moved ? 0 : idle + 1;
      assert.ok(
        idle < 100 * warps.length,
        `block ${block}: a deadlock, warps at ${running.map((w) => `${w.id}: ${source[w.pc].line}`).join(' | ')}`,
      );
    }
    for (const [number, { arrived }] of barriers) assert.equal(arrived, 0, `barrier ${number} is left half arrived at`);
    for (const warp of warps) assert.ok(warp.products.length + warp.product.length + warp.copies.flat().length === 0, 'work is left open');
  }
}
