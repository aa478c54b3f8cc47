/**
 * The kernels of the tests. Each has its SPIR-V, its numbers of bindings and push-constant words, the
 * mask of the bindings that it writes, and `run`, which does the same to plain arrays.
 *
 * Unless noted, a kernel works on u32 with wrap-around, push word 0 is the element count n, and the
 * grid is ceil(n / 64) workgroups.
 */
import { computeShader } from './spirv.mjs';

/**
 * @typedef {import('./spirv.mjs').Builder} Builder
 *
 * @typedef {object} Program
 * @property {string} name
 * @property {number} bindings
 * @property {number} pushWords
 * @property {number} pushBytes
 * @property {number} writes mask of the bindings that it writes
 * @property {(buffers: Uint32Array[], push: Uint32Array) => void} run
 * @property {Uint32Array} spirv
 */

/** For kernels whose effect the tests compute themselves. */
const unmodelled = () => {
  throw new Error('this kernel has no model');
};

/**
 * @param {string} name
 * @param {import('./spirv.mjs').ShaderOptions & {bindings: number, writes: number, body: (b: Builder) => void,
 *   run?: Program['run']}} options
 * @returns {Program}
 */
const program = (name, { bindings, pushWords = 0, writes, run = unmodelled, body, ...options }) => ({
  name,
  bindings,
  pushWords,
  pushBytes: 4 * pushWords + 8 * (options.pushAddresses ?? 0),
  writes,
  run,
  spirv: computeShader({ pushWords, ...options }, body),
});

/**
 * Runs `body(b, i)` for every i below push word 0.
 * @param {(b: Builder, i: number) => void} body
 * @returns {(b: Builder) => void}
 */
const elementwise = (body) => (b) => {
  const i = b.globalX;
  b.if(b.less(i, b.push(0)), () => body(b, i));
};
/**
 * @param {(buffers: Uint32Array[], i: number, push: Uint32Array) => void} f
 * @returns {Program['run']}
 */
const each = (f) => (buffers, push) => {
  for (let i = 0; i < push[0]; i++) f(buffers, i, push);
};

/** c[i] = a[i] * push[1] + b[i] */
export const scaleAdd = program('scaleAdd', {
  bindings: 3,
  pushWords: 2,
  writes: 0b100,
  body: elementwise((b, i) => b.store(2, i, b.add(b.mul(b.load(0, i), b.push(1)), b.load(1, i)))),
  run: each(([a, b, c], i, push) => {
    c[i] = Math.imul(a[i], push[1]) + b[i];
  }),
});

/** c[i] = a[i] * k + b[i] in f32; push word 1 is the bit pattern of k. */
export const scaleAddF32 = program('scaleAddF32', {
  bindings: 3,
  pushWords: 2,
  writes: 0b100,
  elem: 'f32',
  body: elementwise((b, i) => b.store(2, i, b.fadd(b.fmul(b.load(0, i), b.bitcast(b.f32, b.push(1))), b.load(1, i)))),
});

/** a[i] += push[1] */
export const increment = program('increment', {
  bindings: 1,
  pushWords: 2,
  writes: 0b1,
  body: elementwise((b, i) => b.store(0, i, b.add(b.load(0, i), b.push(1)))),
  run: each(([a], i, push) => {
    a[i] += push[1];
  }),
});

/** x[i] = a[i] + 1; y[i] = a[i] * 3. A mask that names only y is the trainer's usual mistake. */
export const twoOutputs = program('twoOutputs', {
  bindings: 3,
  pushWords: 1,
  writes: 0b110,
  body: elementwise((b, i) => {
    const a = b.load(0, i);
    b.store(1, i, b.add(a, b.u(1)));
    b.store(2, i, b.mul(a, b.u(3)));
  }),
  run: each(([a, x, y], i) => {
    const v = a[i];
    x[i] = v + 1;
    y[i] = Math.imul(v, 3);
  }),
});

/** y[i] = x[n-1-i]: every element is read by an invocation other than its writer. */
export const reverse = program('reverse', {
  bindings: 2,
  pushWords: 1,
  writes: 0b10,
  body: elementwise((b, i) => b.store(1, i, b.load(0, b.sub(b.sub(b.push(0), b.u(1)), i)))),
  run: each(([x, y], i, [n]) => {
    y[i] = x[n - 1 - i];
  }),
});

/** y[i] = x[push[1] - 1 - i]: the end of a long buffer, backwards. */
export const reverseTail = program('reverseTail', {
  bindings: 2,
  pushWords: 2,
  writes: 0b10,
  body: elementwise((b, i) => b.store(1, i, b.load(0, b.sub(b.sub(b.push(1), b.u(1)), i)))),
  run: each(([x, y], i, push) => {
    y[i] = x[push[1] - 1 - i];
  }),
});

/** sum[0] += x[0] + … + x[n-1], by atomics: a write without any store. */
export const atomicSum = program('atomicSum', {
  bindings: 2,
  pushWords: 1,
  writes: 0b10,
  body: elementwise((b, i) => b.atomicAdd(1, b.u(0), b.load(0, i))),
  run: each(([x, sum], i) => {
    sum[0] += x[i];
  }),
});

/** y[i] = x[i] ^ 0x5a5a5a5a, stored by a function that main calls. */
export const storeInFunction = program('storeInFunction', {
  bindings: 2,
  pushWords: 1,
  writes: 0b10,
  body: (b) => {
    const store = b.procedureOf(() => {
      const i = b.globalX;
      b.if(b.less(i, b.push(0)), () => b.store(1, i, b.xor(b.load(0, i), b.u(0x5a5a5a5a))));
    });
    b.call(store);
  },
  run: each(([x, y], i) => {
    y[i] = x[i] ^ 0x5a5a5a5a;
  }),
});

/** y[i] = x[i] + 9, stored through a pointer that a function is given. */
export const storeThroughParameter = program('storeThroughParameter', {
  bindings: 2,
  pushWords: 1,
  writes: 0b10,
  capabilities: [4441 /* VariablePointersStorageBuffer */],
  body: (b) => {
    const store = b.procedureOf((pointer, value) => b.storeTo(pointer, b.add(value, b.u(9))), [b.elementPointer, b.u32]);
    elementwise((_, i) => b.call(store, b.at(1, i), b.load(0, i)))(b);
  },
  run: each(([x, y], i) => {
    y[i] = x[i] + 9;
  }),
});

/** (i < 100 ? y : z)[i] = x[i], stored through a selected pointer. */
export const storeThroughSelect = program('storeThroughSelect', {
  bindings: 3,
  pushWords: 1,
  writes: 0b110,
  capabilities: [4442 /* VariablePointers */],
  body: elementwise((b, i) => {
    const [y, z] = [b.at(1, i), b.at(2, i)];
    b.storeTo(b.select(b.elementPointer, b.less(i, b.u(100)), y, z), b.load(0, i));
  }),
  run: each(([x, y, z], i) => {
    (i < 100 ? y : z)[i] = x[i];
  }),
});

/** y[i] = x[i] by OpCopyMemory. */
export const copyMemory = program('copyMemory', {
  bindings: 2,
  pushWords: 1,
  writes: 0b10,
  body: elementwise((b, i) => b.copyMemory(1, 0, i)),
  run: each(([x, y], i) => {
    y[i] = x[i];
  }),
});

/** Loads and writes nothing. */
export const readOnly = program('readOnly', {
  bindings: 1,
  pushWords: 1,
  writes: 0,
  body: elementwise((b, i) => {
    b.load(0, i);
  }),
  run: () => {},
});

const LCG = [1664525, 1013904223];

/**
 * push[1] steps of x → 1664525·x + 1013904223 are one step x → m·x + a; returns [m, a].
 * @param {number} steps
 */
export function lcgPower(steps) {
  let [m, a] = [1, 0];
  let [bm, ba] = LCG;
  for (let n = steps >>> 0; n > 0; n >>>= 1) {
    if (n & 1) [m, a] = [Math.imul(bm, m), (Math.imul(bm, a) + ba) >>> 0];
    [bm, ba] = [Math.imul(bm, bm), (Math.imul(bm, ba) + ba) >>> 0];
  }
  return [m, a];
}

/**
 * y[i] = push[1] steps of a linear congruential generator from x[i]: keeps the device busy for a chosen
 * time, with a result that the CPU can compute at once. At most 65,000 steps: llvmpipe ends a shader's
 * loops after 65,535 rounds in all (LP_MAX_TGSI_LOOP_ITERATIONS), silently.
 */
export const churn = program('churn', {
  bindings: 2,
  pushWords: 2,
  writes: 0b10,
  body: elementwise((b, i) => {
    const x = b.local(b.load(0, i));
    b.repeat(b.push(1), () => x.set(b.add(b.mul(x.get(), b.u(LCG[0])), b.u(LCG[1]))));
    b.store(1, i, x.get());
  }),
  run: ([x, y], [n, steps]) => {
    if (steps > 65_000) throw new RangeError(`churn: ${steps} steps`);
    const [m, a] = lcgPower(steps);
    for (let i = 0; i < n; i++) y[i] = Math.imul(m, x[i]) + a;
  },
});

/**
 * Binding count-1 gets the sum of the others, plus one.
 * @param {number} count
 */
export const wide = (count) =>
  program(`wide${count}`, {
    bindings: count,
    pushWords: 1,
    writes: 2 ** (count - 1),
    body: elementwise((b, i) => {
      let sum = b.u(1);
      for (let k = 0; k < count - 1; k++) sum = b.add(sum, b.load(k, i));
      b.store(count - 1, i, sum);
    }),
    run: (buffers, [n]) => {
      for (let i = 0; i < n; i++) {
        let sum = 1;
        for (let k = 0; k < count - 1; k++) sum = (sum + buffers[k][i]) >>> 0;
        buffers[count - 1][i] = sum;
      }
    },
  });

/** No bindings, no push constants, nothing to do. */
export const nothing = program('nothing', { bindings: 0, writes: 0, body: () => {}, run: () => {} });

/**
 * out[j] = push word j, by one invocation.
 * @param {number} words
 */
export const pushEcho = (words) =>
  program(`pushEcho${words}`, {
    bindings: 1,
    pushWords: words,
    writes: 0b1,
    local: [1, 1, 1],
    body: (b) => {
      for (let j = 0; j < words; j++) b.store(0, b.u(j), b.push(j));
    },
    run: ([out], push) => {
      for (let j = 0; j < words; j++) out[j] = push[j];
    },
  });

/** out[x + gX·(y + gY·z)] = x + 100·y + 10000·z for every workgroup (x, y, z) of one invocation. */
export const grid = program('grid', {
  bindings: 1,
  writes: 0b1,
  local: [1, 1, 1],
  body: (b) => {
    const [id, size] = [b.builtin('WorkgroupId'), b.builtin('NumWorkgroups')];
    const [x, y, z] = [0, 1, 2].map((k) => b.component(id, k));
    const [gX, gY] = [0, 1].map((k) => b.component(size, k));
    const index = b.add(x, b.mul(gX, b.add(y, b.mul(gY, z))));
    b.store(0, index, b.add(x, b.add(b.mul(y, b.u(100)), b.mul(z, b.u(10000)))));
  },
});

/** out[0] = constant 0 (u32, default 7), out[1] = constant 1 (f32, default 1.5), as bits. */
export const specialized = program('specialized', {
  bindings: 1,
  writes: 0b1,
  local: [1, 1, 1],
  body: (b) => {
    const [word, float] = [b.spec(0, b.u32, 7), b.spec(1, b.f32, 0x3fc00000)];
    b.store(0, b.u(0), word);
    b.store(0, b.u(1), b.bitcast(b.u32, float));
  },
});

/** out[0] += 1 by every invocation; the workgroup size is in specialization constants 0, 1, 2. */
export const countInvocations = program('countInvocations', {
  bindings: 1,
  writes: 0b1,
  local: [1, 1, 1],
  body: (b) => {
    b.workgroupSizeBySpecialization([1, 1, 1]);
    b.atomicAdd(0, b.u(0), b.u(1));
  },
});

/** c[i] = a[i] + b[i] behind addresses; push words after them: n, and one that is not used. */
export const addByAddress = program('addByAddress', {
  bindings: 0,
  pushAddresses: 3,
  pushWords: 2,
  writes: 0,
  body: elementwise((b, i) => b.storeAddress(2, i, b.add(b.loadAddress(0, i), b.loadAddress(1, i)))),
});

/**
 * The same kernel in several versions of SPIR-V, as compilers write it.
 * @param {number} version as in a module's header: 0x10300 is 1.3
 */
export const copyInVersion = (version) =>
  program(`copy ${version.toString(16)}`, {
    bindings: 2,
    pushWords: 1,
    writes: 0b10,
    version,
    body: elementwise((b, i) => b.store(1, i, b.load(0, i))),
    run: copyMemory.run,
  });

/**
 * a[i] += push[1] + salt: a different pipeline for each salt.
 * @param {number} salt
 */
export const salted = (salt) =>
  program(`salted${salt}`, {
    bindings: 1,
    pushWords: 2,
    writes: 0b1,
    body: elementwise((b, i) => b.store(0, i, b.add(b.load(0, i), b.add(b.push(1), b.u(salt))))),
    run: each(([a], i, push) => {
      a[i] += push[1] + salt;
    }),
  });

/** SPIR-V without a compute entry point `main`. */
export const misnamed = computeShader({ entry: 'other' }, () => {});
export const fragment = computeShader({ model: 4 }, () => {});

/** Workgroups larger than any device runs, and buffers in another set than 0. */
export const giant = computeShader({ local: [1 << 20, 1, 1] }, () => {});
export const otherSet = computeShader({ set: 1 }, (b) => b.store(0, b.u(0), b.u(1)));
