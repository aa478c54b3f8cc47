// An operation says how to compute something by kernels. A plan is an operation for certain shapes and numbers, its dispatches packed once.

import { type Dispatches, type Kernels, SLOT, Template } from 'helios-vk/kernels';

import type { HostTensor } from './host.js';
import { BackendError, type Dtype, type Shape, type TensorData } from './types.js';

/** A tensor argument of an operation: a slot of its template. */
export interface Operand {
  readonly buffer: number;
  readonly shape: Shape;
  readonly dtype: Dtype;
}

/** Shape and type of an operation's input or output. */
export interface Described {
  readonly shape: Shape;
  readonly dtype: Dtype;
}

/** An operation of the device. Its dispatches depend only on shapes and types of its inputs and on numbers. */
export interface Operation {
  readonly name: string;
  /** Shapes and types of its outputs. @throws BackendError for inputs that it does not take */
  readonly infer: (x: readonly Described[], n: readonly number[]) => readonly Described[];
  /** Its dispatches: inputs x, outputs y, numbers n. */
  readonly lower: (k: Kernels, x: readonly Operand[], y: readonly Operand[], n: readonly number[]) => Dispatches[];
  /** Types of its inputs; those beyond the list are f32. */
  readonly types: readonly (Dtype | 'f32 or f16')[];
  /** Which inputs it writes. */
  readonly writes: readonly number[];
  /** Computes its only output on the host, for inputs of types that the device does not take. */
  readonly host: ((x: readonly TensorData[], n: readonly number[]) => HostTensor) | undefined;
}

/** Makes an operation. All have the same properties, so that V8 compiles what reads them for one shape of object. */
export const operation = (
  name: string,
  infer: Operation['infer'],
  lower: Operation['lower'],
  { types = [], writes = [], host }: Partial<Operation> = {},
): Operation => ({ name, infer, lower, types, writes, host });

/** An operation for some shapes and numbers. */
export interface Plan {
  readonly op: Operation;
  readonly n: readonly number[];
  readonly inputs: readonly Described[];
  readonly outputs: readonly Described[];
  readonly template: Template;
}

/** How many plans of an operation are kept: numbers that differ in every call would fill the memory. */
const MAX_PLANS = 256;

/** Whether the device takes input i of this type. */
export function takes(op: Operation, i: number, dtype: Dtype): boolean {
  const expected = op.types[i] ?? 'f32';
  return dtype === expected || (expected === 'f32 or f16' && (dtype === 'f32' || dtype === 'f16'));
}

/** Whether two lists have the same numbers. 0 and −0 differ. */
export function sameNumbers(a: readonly number[], b: readonly number[]): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (!Object.is(a[i], b[i])) return false;
  return true;
}

function isOf({ inputs, n }: Plan, x: readonly Described[], numbers: readonly number[]): boolean {
  if (inputs.length !== x.length || !sameNumbers(n, numbers)) return false;
  for (let i = 0; i < x.length; i++) if (inputs[i].dtype !== x[i].dtype || !sameNumbers(inputs[i].shape, x[i].shape)) return false;
  return true;
}

/** All plans. Each is made once. */
export class Plans {
  private readonly known = new Map<Operation, Plan[]>();
  constructor(private readonly kernels: Kernels) {}

  /** @throws BackendError for types and shapes that the operation does not take */
  of(op: Operation, x: readonly Described[], n: readonly number[]): Plan {
    let plans = this.known.get(op);
    if (!plans) this.known.set(op, (plans = []));
    for (const plan of plans) if (isOf(plan, x, n)) return plan;
    x.forEach(({ dtype }, i) => {
      if (!takes(op, i, dtype)) throw new BackendError(op.name, `argument ${i + 1} is ${dtype}, expected ${op.types[i] ?? 'f32'}`);
    });
    const operand = ({ shape, dtype }: Described, i: number): Operand => ({ buffer: SLOT + i, shape, dtype });
    const inputs = x.map(operand);
    const outputs = op.infer(inputs, n);
    const results = outputs.map((output, i) => operand(output, x.length + i));
    const plan = { op, n, inputs, outputs, template: new Template(...op.lower(this.kernels, inputs, results, n)) };
    if (plans.length >= MAX_PLANS) plans.length = 0;
    plans.push(plan);
    return plan;
  }
}
