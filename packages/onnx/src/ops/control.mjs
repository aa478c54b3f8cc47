// Operators that run graphs: the host decides which and how often, so that what they do is one program for `compile`.

import { concat, reshape, slice } from '../arrays.mjs';
import { Value, axisOf, scalar } from './lib.mjs';

/** @typedef {import('../definitions.mjs').Controlling} Controlling */
/** @typedef {import('../definitions.mjs').Graph} Graph */

/** Values joined along a new dimension. @param {Value[]} values @param {number} axis @returns {Value} */
const stacked = (values, axis) =>
  concat(
    values.map((value) => reshape(value, value.shape.toSpliced(axis, 0, 1))),
    axis,
  );

/**
 * A graph among the attributes of a node.
 * @param {import('../definitions.mjs').Attributes} attributes @param {'body' | 'then_branch' | 'else_branch'} name @returns {Graph}
 */
function graphIn(attributes, name) {
  if (attributes[name]?.nodes === undefined) throw new Error(`the attribute ${name} is no graph`);
  return attributes[name];
}

/** An output of no turns: of the type and sizes in the file. @param {Graph} body @param {number} output */
function nothing(body, output) {
  const { name, type, shape } = body.outputs[output];
  if (type === undefined || shape?.some((size) => typeof size !== 'number'))
    throw new Error(`no turn makes ${name}, whose shape is not known`);
  return Value.host(type, [0, .../** @type {number[]} */ (shape ?? [])], []);
}

/** @type {Controlling} */
const branch = {
  host: [0],
  *control([condition], attributes, { execute }) {
    return yield* execute(graphIn(attributes, condition.number ? 'then_branch' : 'else_branch'), []);
  },
};

/** @type {Controlling} */
const loop = {
  host: [0, 1],
  *control([count, condition, ...first], attributes, { node, execute, turn: next }) {
    const body = graphIn(attributes, 'body');
    const turns = count?.number ?? Infinity;
    let goesOn = condition ? Boolean(condition.number) : true;
    /** @type {(Value | undefined)[]} */
    let carried = first;
    /** @type {Value[][]} */
    const made = [];
    for (let turn = 0; turn < turns && goesOn; turn++) {
      next();
      const [condition, ...outputs] = yield* execute(body, [scalar('int64', turn), scalar('bool', 1), ...carried]);
      carried = outputs.slice(0, first.length);
      made.push(/** @type {Value[]} */ (outputs.slice(first.length)));
      // The last turn's condition decides nothing.
      if (condition !== undefined && turn + 1 < turns) {
        if (condition.elements === undefined) yield { node, input: body.outputs[0].name, value: condition };
        goesOn = Boolean(condition.number);
      }
    }
    const results = body.outputs.slice(1 + first.length).map((_, i) =>
      made.length === 0
        ? nothing(body, 1 + first.length + i)
        : stacked(
            made.map((each) => each[i]),
            0,
          ),
    );
    return [...carried, ...results];
  },
};

/** @type {Controlling} */
const scan = {
  *control(inputs, attributes, { opset, execute, turn: next }) {
    if (opset < 9) throw new Error('opset 9 or later is supported');
    const body = graphIn(attributes, 'body');
    const count = attributes.num_scan_inputs;
    const states = inputs.length - count;
    const outputs = body.outputs.length - states;
    const { scan_input_axes: axes = [], scan_input_directions: directions = [] } = attributes;
    const { scan_output_axes: outAxes = [], scan_output_directions: outDirections = [] } = attributes;
    const scanned = inputs.slice(states);
    const along = scanned.map((x, i) => axisOf(axes[i] ?? 0, x.rank));
    const turns = scanned[0].shape[along[0]];
    /** @type {(Value | undefined)[]} */
    let carried = inputs.slice(0, states);
    /** @type {Value[][]} */
    const made = [];
    for (let turn = 0; turn < turns; turn++) {
      next();
      const parts = scanned.map((x, i) => {
        const part = slice(x, along[i], directions[i] ? turns - 1 - turn : turn, 1);
        return reshape(part, part.shape.toSpliced(along[i], 1));
      });
      const results = yield* execute(body, [...carried, ...parts]);
      carried = results.slice(0, states);
      made.push(/** @type {Value[]} */ (results.slice(states)));
    }
    const joined = Array.from({ length: outputs }, (_, i) => {
      if (turns === 0) return nothing(body, states + i);
      const values = made.map((each) => each[i]);
      return stacked(outDirections[i] ? values.reverse() : values, axisOf(outAxes[i] ?? 0, values[0].rank + 1));
    });
    return [...carried, ...joined];
  },
};

/** @type {import('../definitions.mjs').Table} */
export const CONTROL = {
  If: branch,
  Loop: loop,
  Scan: scan,
};
