// Dispatches of generated kernels over tensors of any layout: chooses how a program addresses each operand, and fills its push constants.

import { MAX_CPU_ROUNDS } from '../../kernels/base.mjs';
import { VECTOR_ACCESS } from '../../kernels/program.mjs';
import { WideProgram as Program, wordsOf } from './int64.mjs';
import { broadcastLayout, collapse, isNarrow, layoutOf, sizeOf } from './layout.mjs';

export { OPERATIONS, TYPES } from '../../kernels/program.mjs';
export { Program };

/** @typedef {import('./layout.mjs').Layout} Layout */
/** @typedef {import('../ops/registry.mjs').Operand} Operand */
/** @typedef {import('../../kernels/base.mjs').KernelContext} Context */
/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */
/** @typedef {import('../../kernels/program.mjs').Access} Access */
/** @typedef {import('../../kernels/program.mjs').TemplateName} TemplateName */
/** @typedef {import('../../kernels/program.mjs').ElementType} ElementType */
/** @typedef {import('../../kernels/program.mjs').Value} Value the number of a value of a program */

/** The pipeline of a program, made at first use. @param {Context} context @param {Program} program @returns {number} */
function pipelineOf(context, program) {
  const words = program.words();
  const name = `${program.template}(${program.operations.join() || 'copy'})`;
  return context.generated(words.join(), name, () => words);
}

/**
 * How a flat kernel addresses an operand whose elements are counted in the order of a shape.
 * @param {readonly number[]} shape @param {readonly number[]} strides @param {number} offset
 * @returns {{ access: Access, rest: number[] }} `rest` has further push constants: the period of a periodic operand
 */
function accessOf(shape, strides, offset) {
  const { shape: sizes, strides: collapsed } = collapse(shape, [strides]);
  const [own] = collapsed;
  const last = sizes.length - 1;
  const dense = { access: /** @type {Access} */ (offset % 4 === 0 ? 'dense' : 'shifted'), rest: [] };
  if (last === 0 && (sizes[0] === 1 || own[0] === 0)) return sizes[0] === 1 ? dense : { access: 'scalar', rest: [] };
  if (last === 0 && own[0] === 1) return dense;
  if (last === 1 && own[0] === 0 && own[1] === 1) {
    return { access: (offset | sizes[1]) % 4 === 0 ? 'tiled' : 'period', rest: [sizes[1]] };
  }
  return { access: 'strided', rest: [] };
}

/**
 * The same for the matrix templates. They know the row and column of an element, so no divisions are needed to find them.
 * @param {readonly number[]} shape @param {readonly number[]} strides @param {number} offset
 * @param {{ rows: number, columns: number }} matrix as many elements as the shape
 * @returns {{ access: Access, rest: number[] }}
 */
function accessOfMatrix(shape, strides, offset, { rows, columns }) {
  const aligned = columns % 4 === 0;
  const { access, rest } = accessOf(shape, strides, offset);
  if (access === 'tiled' && rest[0] === columns && aligned) return { access: 'ofColumn', rest: [] };
  if (access === 'strided') {
    const { shape: sizes, strides: collapsed } = collapse(shape, [strides]);
    const [own] = collapsed;
    if (sizes.length === 2 && sizes[0] === rows && sizes[1] === columns && own[1] === 0) return { access: 'ofRow', rest: [own[0]] };
  }
  // Rows begin at multiples of four elements only if the number of columns is a multiple of four.
  if (access === 'dense' && !aligned) return { access: 'shifted', rest };
  return access === 'tiled' && !aligned ? { access: 'period', rest } : { access, rest };
}

/**
 * Whether a generated kernel can write a layout: elements of 16 bits are written two at a time, and bytes four, as words.
 * @param {Layout} layout
 */
export const writable = ({ dtype, contiguous, offset }) => !isNarrow(dtype) || (contiguous && offset % 4 === 0);

/** Words of push constants that every Vulkan device supports (128 bytes). */
const PUSH_WORDS = 32;

/** An operand as kernels read it: of i64 the low words, then the high ones. @param {Operand} operand @returns {Operand[]} */
function wordsIn({ buffer, offset, layout }) {
  if (layout.dtype !== 'i64') return [{ buffer, offset, layout }];
  const strides = layout.strides.map((stride) => 2 * stride);
  return [0, 1].map((half) => ({
    buffer,
    offset: 2 * offset + half,
    layout: layoutOf(layout.shape, strides, 2 * offset + half, 'u32'),
  }));
}

/** An input of a type, dense; of i64 a pair of its words. @param {Program} program @param {Layout['dtype']} dtype @returns {Value} */
export const inputOf = (program, dtype) =>
  dtype === 'i64' ? program.pair(program.input('u32'), program.input('u32')) : program.input(dtype);

/** A constant of an integer type. @typedef {{ value: number | bigint, type: 'i32' | 'u32' | 'i64' }} Integer */

/** The words of a constant as the device has it. @param {number | Integer} number @returns {{ type: 'f32' | 'i32' | 'u32', bits: number }[]} */
function bitsOf(number) {
  if (typeof number === 'number') return [{ type: 'f32', bits: new Uint32Array(Float32Array.of(number).buffer)[0] }];
  const [low, high] = wordsOf(number.value);
  if (number.type !== 'i64') return [{ type: number.type, bits: low }];
  return [low, high].map((bits) => ({ type: 'u32', bits }));
}

/**
 * Makes values of a program of constants, each word by `make`.
 * @param {Program} program @param {(number | Integer)[]} numbers @param {(type: 'f32' | 'i32' | 'u32', bits: number) => Value} make
 */
export const constantsOf = (program, numbers, make) =>
  numbers.map((number) => {
    const [first, second] = bitsOf(number).map(({ type, bits }) => make(type, bits));
    return second === undefined ? first : program.pair(first, second);
  });

/**
 * Generates what a program computes for one element.
 * @callback Body
 * @param {Program} program @param {Value[]} inputs
 * @param {(...values: (number | Integer)[]) => Value[]} numbers values, f32 or of an integer type, passed as push constants, so that a change
 *   needs no new kernel; call it before anything is appended
 * @returns {Value[]} a value for each output
 */

/**
 * The dispatch of an elementwise kernel: computes each element of the outputs from the corresponding elements of the inputs.
 * @param {Context} context
 * @param {Operand[]} inputs of shapes that broadcast to the outputs'
 * @param {Operand[]} outputs of one shape, `writable` each
 * @param {Body} body
 * @returns {Dispatch | undefined} undefined if the strides do not fit the push constants
 */
export function map(context, inputs, outputs, body) {
  const { shape, size } = outputs[0].layout;
  const lanes = context.flatThreads;
  const groups = context.strideGroups(Math.ceil(size / 4), lanes);
  return dispatchOf(context, { template: 'flat', lanes, groups, sizes: [size], shape }, inputs, outputs, body);
}

/**
 * The dispatch of a program.
 * @param {Context} context
 * @param {{ template: TemplateName, lanes: number, groups: number, sizes: number[], shape: readonly number[] }} how `shape` is that of the
 *   elements
 * @param {Operand[]} given inputs, of shapes that broadcast to `shape`
 * @param {Operand[]} made outputs, of `shape`, or with one element for each row or column
 * @param {Body} body
 * @returns {Dispatch | undefined}
 */
function dispatchOf(context, { template, lanes, groups, sizes, shape }, given, made, body) {
  const [read, written] = [given, made].map((operands) => operands.map(wordsIn));
  const [inputs, outputs] = [read, written].map((operands) => operands.flat());
  const size = sizeOf(shape);
  const matrix = template === 'flat' ? undefined : { rows: sizes[0], columns: sizes[1] };
  const operands = [...inputs, ...outputs].map(({ layout, offset }, i) => {
    if (i >= inputs.length && layout.size !== size) return { offset, strides: [], access: /** @type {Access} */ ('shifted'), rest: [] };
    const { strides } = broadcastLayout(layout, shape);
    const { access, rest } = matrix ? accessOfMatrix(shape, strides, offset, matrix) : accessOf(shape, strides, offset);
    return { offset, strides, access, rest };
  });
  // The kernel gets only the dimensions that the strided operands need.
  const strided = operands.filter(({ access }) => access === 'strided');
  const { shape: dimensions, strides } = strided.length
    ? collapse(
        shape,
        strided.map((operand) => operand.strides),
      )
    : { shape: [], strides: [] };
  strided.forEach((operand, i) => {
    operand.rest = strides[i];
  });
  if (dimensions.length > 8) return undefined;

  const program = new Program(lanes, dimensions.length, template, context.floatControls);
  let next = 0;
  const values = read.map((words) => {
    const [first, second] = words.map(({ layout }) => program.input(/** @type {ElementType} */ (layout.dtype), operands[next++].access));
    return second === undefined ? first : program.pair(first, second);
  });
  /** Bits. @type {number[]} */
  const scalars = [];
  const computed = body(program, values, (...numbers) =>
    constantsOf(program, numbers, (type, bits) => {
      scalars.push(bits);
      return program.scalar(type);
    }),
  );
  const results = written.flatMap((words, i) => (words.length > 1 ? program.wordsOf(computed[i]) : [computed[i]]));
  outputs.forEach(({ layout }, i) => {
    program.output(/** @type {ElementType} */ (layout.dtype), results[i], operands[inputs.length + i].access);
  });
  const push = [...sizes, ...dimensions, ...operands.flatMap(({ offset, rest }) => [offset, ...rest])];
  if (push.length + scalars.length > PUSH_WORDS) return undefined;
  if (template === 'row') {
    const elements = outputs.flatMap(({ layout }, i) => (layout.size === size ? [results[i]] : []));
    context.checkRounds('compile', `rows of ${sizes[1]}`, rowRounds(program, { lanes, groups, sizes }, elements));
  }
  const words = new Uint32Array(push.length + scalars.length);
  words.set(push);
  words.set(scalars, push.length);
  return {
    get pipeline() {
      return pipelineOf(context, program);
    },
    buffers: [...inputs, ...outputs].map(({ buffer }) => buffer),
    groups: [groups, 1, 1],
    push: new Uint8Array(words.buffer),
    writeMask: (2 ** outputs.length - 1) * 2 ** inputs.length,
  };
}

/**
 * How many loop rounds one invocation of the row template runs (crates/kernel-codegen/src/row.rs); a loop of n rounds counts n + 1.
 * @param {Program} program @param {{ lanes: number, groups: number, sizes: number[] }} how
 * @param {Value[]} elements outputs with an element for each element of the matrix
 */
function rowRounds(program, { lanes, groups, sizes: [rows, columns] }, elements) {
  const depths = program.depths();
  const deepest = Math.max(0, ...depths);
  const onTheWay = deepest <= 1 && elements.every((value) => depths[value] === 0);
  const passes = onTheWay ? 1 : deepest + (elements.length > 0 ? 1 : 0);
  const units = Math.ceil(columns / 4 / lanes);
  const vectors = [...program.inputs.filter((_, i) => i % 2 === 1), ...program.outputs.filter((_, i) => i % 3 === 1)];
  const inFours = vectors.some((access) => VECTOR_ACCESS.includes(access));
  // Without vector access, each round has a loop over the remaining columns: at most three, counted as one round if there are none.
  const pass = inFours ? units + 1 : 2 * units + 4;
  return Math.ceil(rows / (groups * (lanes === 1 ? LONE_ROWS : 1))) * (1 + passes * pass);
}

/** With one lane per row: rows of a workgroup of the row template, and the longest row. */
const [LONE_ROWS, MAX_LONE_COLUMNS] = [8, 1 << 14];

/** The smallest power of two that is at least n. @param {number} n */
const powerOfTwo = (n) => 2 ** Math.ceil(Math.log2(Math.max(1, n)));

/**
 * The dispatch of a program with reductions along rows.
 * @param {Context} context @param {{ rows: number, columns: number, shape: readonly number[] }} sizes `shape` has rows · columns elements
 * @param {Operand[]} inputs
 * @param {Operand[]} outputs of `shape`, or with one element for each row; 16-bit ones need a multiple of four columns
 * @param {Body} body
 */
export function mapRows(context, { rows, columns, shape }, inputs, outputs, body) {
  const { isCpu, info } = context;
  // A CPU runs eight lanes at a time: each takes a row, or, if rows are few or long, all take one row together. On a GPU each lane takes four
  // elements at a time.
  const lone = isCpu && rows >= LONE_ROWS && columns <= MAX_LONE_COLUMNS;
  const most = isCpu ? 8 : Math.min(1024, info.maxComputeWorkGroupInvocations);
  const lanes = lone ? 1 : Math.min(most, Math.max(isCpu ? 8 : 32, powerOfTwo(columns / 4)));
  const groups = context.strideGroups(lone ? Math.ceil(rows / LONE_ROWS) : rows, 1);
  const how = { template: /** @type {const} */ ('row'), lanes, groups, sizes: [rows, columns], shape };
  return dispatchOf(context, how, inputs, outputs, body);
}

/**
 * The dispatch of a program with sums over the rows. To fill the device it may cut the rows into slices, which are summed separately.
 * @param {Context} context @param {{ rows: number, columns: number, shape: readonly number[] }} sizes
 * @param {Operand[]} inputs
 * @param {(slices: number) => Operand[]} outputs of `shape`, or with one element for each slice and column
 * @param {Body} body @param {number} [limit] the most slices
 */
export function mapColumns(context, { rows, columns, shape }, inputs, outputs, body, limit = Infinity) {
  const { isCpu, info } = context;
  // Eight invocations side by side take 32 columns. A GPU adds invocations for more rows, and slices until it is full.
  const most = isCpu ? 8 : Math.min(256, info.maxComputeWorkGroupInvocations);
  const lanes = Math.min(most, Math.max(8, 8 * powerOfTwo(rows / 4)));
  const blocks = Math.ceil(columns / 32);
  const wanted = isCpu ? Math.ceil(rows / MAX_CPU_ROUNDS) : Math.min(Math.ceil(context.residentGroups / blocks), Math.floor(rows / 128));
  const slice = Math.ceil(rows / Math.max(1, Math.min(wanted, limit)));
  const slices = Math.ceil(rows / slice);
  const sizes = [rows, columns, slice];
  const how = { template: /** @type {const} */ ('column'), lanes, groups: context.strideGroups(blocks * slices, 1), sizes, shape };
  const dispatch = dispatchOf(context, how, inputs, outputs(slices), body);
  return dispatch && { dispatch, slices };
}
