// Operations, and their plans: an operation for some shapes and numbers, its dispatches packed once.

import { type Dispatches, type Kernels, SLOT, Template } from 'helios-vk/kernels';

import type { HostTensor } from './host.js';
import { BackendError, type Dtype, type Shape, type TensorData } from './types.js';

/** A tensor argument of an operation: a slot of its template. */
export interface Operand {
  readonly buffer: number;
  readonly shape: Shape;
  readonly dtype: Dtype;
}

/** What an operation makes, or takes. */
export interface Described {
  readonly shape: Shape;
  readonly dtype: Dtype;
}

/** An operation of the device: what it makes of its inputs, and by which dispatches. Numbers are all else it depends on. */
export interface Operation {
  readonly name: string;
  readonly infer: (x: readonly Described[], n: readonly number[]) => readonly Described[];
  readonly lower: (k: Kernels, x: readonly Operand[], y: readonly Operand[], n: readonly number[]) => Dispatches[];
  /** Types of its inputs; f32 where nothing is said. */
  readonly types: readonly (Dtype | 'f32 or f16')[];
  /** Inputs that it writes. */
  readonly writes: readonly number[];
  /** What it makes of inputs whose types the device does not take. */
  readonly host: ((x: readonly TensorData[], n: readonly number[]) => HostTensor) | undefined;
}

/** An operation. All have all properties, so that code that reads them is compiled for one kind of object. */
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

/** Plans of an operation that are kept: numbers that are never the same would fill the memory. */
const MAX_PLANS = 256;

/** Whether the device takes input i of this type. */
export function takes(op: Operation, i: number, dtype: Dtype): boolean {
  const expected = op.types[i] ?? 'f32';
  return dtype === expected || (expected === 'f32 or f16' && (dtype === 'f32' || dtype === 'f16'));
}

/** Whether two lists have the same numbers, 0 and −0 being different. */
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

/** Plans, made once each. */
export class Plans {
  private readonly known = new Map<Operation, Plan[]>();
  constructor(private readonly kernels: Kernels) {}

  /** @throws a `BackendError` for types and shapes that the operation does not take */
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
