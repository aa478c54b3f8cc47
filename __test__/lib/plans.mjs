/**
 * Devices that exist only as descriptions, and the plans of products on them:
 *
 *     node __test__/lib/plans.mjs > __test__/kernels/plans.json
 *
 * writes those of the presets and of four models that no table names, with which __test__/kernels/plans.test.mjs compares.
 */
import { fileURLToPath } from 'node:url';
import { MODELS, productsOf } from '../../bin/lib/tune-shapes.mjs';
import { KernelContext } from '../../kernels/base.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';
import { planName } from '../../kernels/matmul/words.mjs';

/** What `initDevice` reports for an NVIDIA GPU with matrix units. @param {string} deviceName @param {object} [more] */
export function infoOf(deviceName, more = {}) {
  const shapes = [0, 1_000_141_000].flatMap((type) =>
    [
      [16, 16, 16],
      [16, 8, 16],
      [16, 8, 8],
    ].map(([MSize, NSize, KSize]) => {
      const operands = { AType: type, BType: type, CType: 1, ResultType: 1 };
      return { MSize, NSize, KSize, ...operands, saturatingAccumulation: false, scope: 3 };
    }),
  );
  return /** @type {any} */ ({
    deviceName,
    deviceType: 2,
    subgroupSize: 32,
    minSubgroupSize: 32,
    maxSubgroupSize: 32,
    subgroupSizeControlSupported: true,
    computeFullSubgroupsSupported: true,
    maxComputeSharedMemorySize: 49152,
    maxComputeWorkGroupInvocations: 1024,
    maxStorageBufferRange: 2 ** 32 - 1,
    maxBufferBytes: 2 ** 40,
    coopMatSupported: true,
    cooperativeMatrixProperties: shapes,
    ...more,
  });
}

/** A context on a device that is only a description. @param {any} info @param {object} [calls] of the native module */
export const contextOf = (info, calls = {}) =>
  new KernelContext(/** @type {any} */ ({ initDevice: () => info, shaders: {}, ...calls }), { check: false, tuning: false });

/** Products on such a device; its kernels in PTX count as tested. @param {any} info */
export const productsOn = (info) => matmulKernels(contextOf(info), { verify: () => undefined, verifyGroup: () => undefined });

/** Models that no table names, with the tokens of a batch. */
const UNTUNED = /** @type {const} */ ([
  [{ width: 384, hidden: 1024, vocab: 256 }, 16384],
  [{ width: 768, hidden: 2048, vocab: 50304 }, 65536],
  [{ width: 1280, hidden: 3456, vocab: 32000 }, 9216],
  [{ width: 512, hidden: 1376, vocab: 8192 }, 4096],
]);

/** The products of the presets, with the batches that the tables were measured with. */
export const PRESETS = [
  ...productsOf(MODELS['gpt-tiny'], MODELS['gpt-tiny'].tokens),
  ...productsOf(MODELS['gpt-30m'], MODELS['gpt-30m'].tokens),
  ...[512, 1024, 2048, 8192].flatMap((tokens) => productsOf(MODELS['gpt-300m'], tokens)),
];

const HALVES = { aType: 'bf16', bType: 'bf16' };
/** The kinds of products that can be asked for. @type {Record<string, (form: string) => object | undefined>} */
const KINDS = {
  halves: (form) => ({ ...HALVES, cType: form === 'TN' ? 'f32' : 'bf16' }),
  added: (form) => (form === 'TN' ? { ...HALVES, beta: 1 } : undefined),
  permuted: (form) => (form === 'TN' ? undefined : { ...HALVES, cType: 'bf16', bPermuted: true }),
  f32: () => ({}),
  mixed: () => ({ bType: 'bf16' }),
  bf16x3: () => ({ precision: 'bf16x3' }),
};

const PTX = { hasPtx: true, multiprocessors: 132 };
/** Devices, and the kinds that are asked of them. @type {Record<string, { info: any, kinds: string[] }>} */
const DEVICES = {
  'H100 with PTX': { info: infoOf('NVIDIA H100 80GB HBM3', PTX), kinds: ['halves', 'added', 'permuted', 'f32'] },
  'H200 without PTX': { info: infoOf('NVIDIA H200'), kinds: ['halves', 'f32', 'mixed', 'bf16x3'] },
  'another GPU': { info: infoOf('NVIDIA A100'), kinds: ['halves', 'f32', 'mixed'] },
  'an integrated GPU': { info: infoOf('a device', { deviceType: 1 }), kinds: ['halves', 'f32'] },
  'a CPU': { info: infoOf('a device', { deviceType: 4 }), kinds: ['halves', 'f32'] },
};

/**
 * The plans of these products by device, one for each kind that a product has. A permuted product has `no` before its plan if
 * `takesPermuted` says that it is faster as it is; one that ends in SwiGLU has `glu` after it if one kernel computes both.
 * @returns {Record<string, Record<string, string[]>>}
 */
export function plansNow() {
  const products = [...PRESETS, ...UNTUNED.flatMap(([model, tokens]) => productsOf(model, tokens))];
  return Object.fromEntries(
    Object.entries(DEVICES).map(([device, { info, kinds }]) => {
      const { matmulPlan, takesPermuted } = productsOn(info);
      const lines = products.map(({ form, ...sizes }) => {
        const plans = kinds.flatMap((kind) => {
          const types = KINDS[kind](form);
          if (!types) return [];
          const args = /** @type {any} */ ({ ...sizes, transA: form === 'TN', transB: form === 'NT', ...types });
          if (kind !== 'permuted') return [planName(/** @type {any} */ (matmulPlan(args)))];
          // Operands of 4 GiB and more have no kernel in PTX.
          if (2 * sizes.m * Math.max(sizes.n, sizes.k) >= 2 ** 32) return ['none'];
          const glu = takesPermuted({ ...args, glu: form === 'NT' ? 'forward' : 'backward' }) ? ' glu' : '';
          return [`${takesPermuted(args) ? '' : 'no '}${planName(/** @type {any} */ (matmulPlan(args)))}${glu}`];
        });
        return [`${form} ${sizes.m} ${sizes.n} ${sizes.k}`, plans];
      });
      return [device, Object.fromEntries(lines)];
    }),
  );
}

/** One line a product. @param {ReturnType<typeof plansNow>} plans */
const textOf = (plans) =>
  `{\n${Object.entries(plans)
    .map(([device, lines]) => {
      const rows = Object.entries(lines).map(([product, list]) => `  ${JSON.stringify(product)}: ${JSON.stringify(list)}`);
      return ` ${JSON.stringify(device)}: {\n${rows.join(',\n')}\n }`;
    })
    .join(',\n')}\n}\n`;

if (process.argv[1] === fileURLToPath(import.meta.url)) process.stdout.write(textOf(plansNow()));
