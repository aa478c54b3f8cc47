// Dispatches of generated kernels over tensors of any layout: which program finds the elements, and with what push constants.

import { MAX_CPU_ROUNDS } from '../../kernels/base.mjs';
import { Program, VECTOR_ACCESS } from '../../kernels/program.mjs';
import { broadcastLayout, collapse, sizeOf } from './layout.mjs';

export { OPERATIONS, Program, TYPES } from '../../kernels/program.mjs';

/** @typedef {import('./layout.mjs').Layout} Layout */
/** @typedef {import('../ops/registry.mjs').Operand} Operand */
/** @typedef {import('../../kernels/base.mjs').KernelContext} Context */
/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */
/** @typedef {import('../../kernels/program.mjs').Access} Access */
/** @typedef {import('../../kernels/program.mjs').TemplateName} TemplateName */
/** @typedef {import('../../kernels/program.mjs').Value} Value the number of a value of a program */

/** The pipeline of a program. @param {Context} context @param {Program} program @returns {number} */
function pipelineOf(context, program) {
  const words = program.words();
  const name = `${program.template}(${program.operations.join() || 'copy'})`;
  return context.generated(words.join(), name, () => words);
}

/**
 * Where the elements of a layout lie as the elements of a shape are counted.
 * @param {readonly number[]} shape @param {readonly number[]} strides @param {number} offset
 * @returns {{ access: Access, rest: number[] }} `rest` is the period of a periodic one
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
 * The same for the templates of matrices, which know row and column of an element: without the divisions that find them.
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
  // Rows begin at multiples of four elements where there are fours of columns.
  if (access === 'dense' && !aligned) return { access: 'shifted', rest };
  return access === 'tiled' && !aligned ? { access: 'period', rest } : { access, rest };
}

/**
 * Whether a generated kernel writes these elements: 16-bit ones are written in words.
 * @param {Layout} layout
 */
export const writable = ({ dtype, contiguous, offset }) => (dtype !== 'f16' && dtype !== 'bf16') || (contiguous && offset % 4 === 0);

/** Push constants that every device has, in words. */
const PUSH_WORDS = 32;

/**
 * What a program computes.
 * @callback Body
 * @param {Program} program @param {Value[]} inputs
 * @param {(...values: number[]) => Value[]} numbers f32 that the kernel is not made anew for: asked for before anything is appended
 * @returns {Value[]} a value for each output
 */

/**
 * The dispatch of a map: of each element of the outputs' shape, what `body` makes of the inputs'.
 * @param {Context} context
 * @param {Operand[]} inputs of shapes that broadcast to the outputs'
 * @param {Operand[]} outputs of one shape, `writable` each
 * @param {Body} body
 * @returns {Dispatch | undefined} nothing where the strides are more than the push constants that every device has
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
 * @param {{ template: TemplateName, lanes: number, groups: number, sizes: number[], shape: readonly number[] }} how `shape` of the elements
 * @param {Operand[]} inputs of shapes that broadcast to that one
 * @param {Operand[]} outputs of that shape; others have one element for each row or column
 * @param {Body} body
 * @returns {Dispatch | undefined}
 */
function dispatchOf(context, { template, lanes, groups, sizes, shape }, inputs, outputs, body) {
  const size = sizeOf(shape);
  const matrix = template === 'flat' ? undefined : { rows: sizes[0], columns: sizes[1] };
  const operands = [...inputs, ...outputs].map(({ layout, offset }, i) => {
    if (i >= inputs.length && layout.size !== size) return { offset, strides: [], access: /** @type {Access} */ ('shifted'), rest: [] };
    const { strides } = broadcastLayout(layout, shape);
    const { access, rest } = matrix ? accessOfMatrix(shape, strides, offset, matrix) : accessOf(shape, strides, offset);
    return { offset, strides, access, rest };
  });
  // Dimensions are those that the strided operands have.
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
  const values = inputs.map(({ layout }, i) => program.input(layout.dtype, operands[i].access));
  /** @type {number[]} */
  const scalars = [];
  const results = body(program, values, (...numbers) => {
    scalars.push(...numbers);
    return numbers.map(() => program.scalar('f32'));
  });
  outputs.forEach(({ layout }, i) => {
    program.output(layout.dtype, results[i], operands[inputs.length + i].access);
  });
  const push = [...sizes, ...dimensions, ...operands.flatMap(({ offset, rest }) => [offset, ...rest])];
  if (push.length + scalars.length > PUSH_WORDS) return undefined;
  if (template === 'row') {
    const elements = outputs.flatMap(({ layout }, i) => (layout.size === size ? [results[i]] : []));
    context.checkRounds('compile', `rows of ${sizes[1]}`, rowRounds(program, { lanes, groups, sizes }, elements));
  }
  const words = new Uint32Array(push.length + scalars.length);
  words.set(push);
  words.set(new Uint32Array(Float32Array.from(scalars).buffer), push.length);
  return {
    pipeline: pipelineOf(context, program),
    buffers: [...inputs, ...outputs].map(({ buffer }) => buffer),
    groups: [groups, 1, 1],
    push: new Uint8Array(words.buffer),
    writeMask: (2 ** outputs.length - 1) * 2 ** inputs.length,
  };
}

/**
 * Rounds of loops of an invocation of the row template (crates/kernel-codegen/src/row.rs). A loop of n rounds counts n + 1.
 * @param {Program} program @param {{ lanes: number, groups: number, sizes: number[] }} how
 * @param {Value[]} elements outputs that are not one for each row
 */
function rowRounds(program, { lanes, groups, sizes: [rows, columns] }, elements) {
  const depths = program.depths();
  const deepest = Math.max(0, ...depths);
  const onTheWay = deepest <= 1 && elements.every((value) => depths[value] === 0);
  const passes = onTheWay ? 1 : deepest + (elements.length > 0 ? 1 : 0);
  const units = Math.ceil(columns / 4 / lanes);
  const vectors = [...program.inputs.filter((_, i) => i % 2 === 1), ...program.outputs.filter((_, i) => i % 3 === 1)];
  const inFours = vectors.some((access) => VECTOR_ACCESS.includes(access));
  // Where no operand is in fours, each round has a loop over the last columns: three at most, and counted once if there are none.
  const pass = inFours ? units + 1 : 2 * units + 4;
  return Math.ceil(rows / (groups * (lanes === 1 ? LONE_ROWS : 1))) * (1 + passes * pass);
}

/** Rows that a workgroup of the row template with one lane for each takes; the longest of them. */
const [LONE_ROWS, MAX_LONE_COLUMNS] = [8, 1 << 14];

/** The least power of two that is not below a number. @param {number} n */
const powerOfTwo = (n) => 2 ** Math.ceil(Math.log2(Math.max(1, n)));

/**
 * The dispatch of a program with reductions along rows: `shape` is of `rows` times `columns` elements.
 * @param {Context} context @param {{ rows: number, columns: number, shape: readonly number[] }} sizes
 * @param {Operand[]} inputs @param {Operand[]} outputs of the shape, 16-bit ones of rows of fours; or of an element for each row
 * @param {Body} body
 */
export function mapRows(context, { rows, columns, shape }, inputs, outputs, body) {
  const { isCpu, info } = context;
  // Eight lanes are what a CPU does at a time: a row each, or where rows are few or long one row together. A GPU's rows take fours for
  // each lane.
  const lone = isCpu && rows >= LONE_ROWS && columns <= MAX_LONE_COLUMNS;
  const most = isCpu ? 8 : Math.min(1024, info.maxComputeWorkGroupInvocations);
  const lanes = lone ? 1 : Math.min(most, Math.max(isCpu ? 8 : 32, powerOfTwo(columns / 4)));
  const groups = context.strideGroups(lone ? Math.ceil(rows / LONE_ROWS) : rows, 1);
  const how = { template: /** @type {const} */ ('row'), lanes, groups, sizes: [rows, columns], shape };
  return dispatchOf(context, how, inputs, outputs, body);
}

/**
 * The dispatch of a program with sums over the rows, and into how many slices it cuts them.
 * @param {Context} context @param {{ rows: number, columns: number, shape: readonly number[] }} sizes
 * @param {Operand[]} inputs
 * @param {(slices: number) => Operand[]} outputs of the shape, or of an element for each slice and column
 * @param {Body} body
 */
export function mapColumns(context, { rows, columns, shape }, inputs, outputs, body) {
  const { isCpu, info } = context;
  // Eight invocations side by side take 32 columns; a GPU has others for other rows, and slices until it is full.
  const most = isCpu ? 8 : Math.min(256, info.maxComputeWorkGroupInvocations);
  const lanes = Math.min(most, Math.max(8, 8 * powerOfTwo(rows / 4)));
  const blocks = Math.ceil(columns / 32);
  const wanted = isCpu ? Math.ceil(rows / MAX_CPU_ROUNDS) : Math.min(Math.ceil(context.residentGroups / blocks), Math.floor(rows / 128));
  const slice = Math.ceil(rows / Math.max(1, wanted));
  const slices = Math.ceil(rows / slice);
  const sizes = [rows, columns, slice];
  const how = { template: /** @type {const} */ ('column'), lanes, groups: context.strideGroups(blocks * slices, 1), sizes, shape };
  const dispatch = dispatchOf(context, how, inputs, outputs(slices), body);
  return dispatch && { dispatch, slices };
}
