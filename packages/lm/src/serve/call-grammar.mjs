// The answers that have calls of tools, as an automaton: in each family's form, with the arguments that the tool's schema says.

import { keyOf, rootOf } from '../infer/constraint.mjs';
import { ANY_OBJECT, DONE, SPACES, State, either, oneOf, spaced, startOf, textOf, until } from '../infer/grammar.mjs';
import { wrong } from './fields.mjs';

/** @typedef {import('../infer/grammar.mjs').Shape} Shape */
/** @typedef {import('../infer/types.mjs').Constraint} Constraint */
/** @typedef {import('./tools.mjs').Tools} Tools */

const OPEN = '{'.charCodeAt(0);

/**
 * What makes the constraint of each answer: calls alone, where there must be one; with `json` calls or JSON; with a strict tool among them any text
 * with calls that fit. Undefined where an answer may be anything.
 * @param {import('../infer/model.mjs').LanguageModel} model @param {Tools} tools @param {true | object | undefined} json
 * @returns {(() => Constraint) | undefined}
 * @throws {import('./fields.mjs').ApiError} for a schema that cannot be followed: of every tool where there must be a call, else of a strict one
 */
export function callConstraint(model, tools, json) {
  const { list, form, required, several } = tools;
  const isStrict = (/** @type {Tools['list'][number]} */ { tool }) => tool.function.strict === true;
  const free = !required && json === undefined;
  if (free && !list.some(isStrict)) return undefined;
  const shapes = list.map((each) => ({ name: each.tool.function.name, shape: argumentsOf(each, required || isStrict(each)) }));
  const { tokenizer } = model;
  const special = form.marks.filter((mark) => {
    const id = tokenizer.idOf(mark);
    return id !== undefined && tokenizer.bytesOf(id) === undefined;
  });
  const spell = (/** @type {string} */ text) => {
    const code = special.indexOf(text);
    return code < 0 ? Buffer.from(text).toString('latin1') : String.fromCharCode(256 + code);
  };
  const start = () => {
    const calls = callsOf(form, shapes, { several, free, spell });
    return json === undefined || required ? calls : either([calls, startOf(json === true ? ANY_OBJECT : rootOf(json, 'response_format'))]);
  };
  const own = list.map(({ tool: { function: each } }) => [each.name, each.parameters ?? null, each.strict === true]);
  const marks = special.map((mark) => /** @type {number} */ (tokenizer.idOf(mark)));
  try {
    const key = keyOf([form.begin, form.write, several, required, json ?? null, own], 'tools');
    const make = () => model.constrain(key, start, marks);
    make();
    return make;
  } catch (error) {
    throw wrong('tools', /** @type {Error} */ (error).message);
  }
}

/** The shape of a tool's arguments. @param {Tools['list'][number]} tool @param {boolean} exact whether any object will not do @returns {Shape} */
function argumentsOf({ tool, at }, exact) {
  const { parameters } = tool.function;
  const where = `${at}.function.parameters`;
  // A tool that does not say what it takes takes nothing.
  if (parameters === undefined || parameters === null) return { ...ANY_OBJECT, members: [] };
  try {
    keyOf(parameters, where);
    return rootOf({ type: 'object', ...parameters }, where);
  } catch (error) {
    if (exact) throw wrong(where, /** @type {Error} */ (error).message);
    return ANY_OBJECT;
  }
}

/**
 * @param {import('./tools.mjs').CallForm} form @param {{ name: string, shape: Shape }[]} tools
 * @param {{ several: boolean, free: boolean, spell: (text: string) => string }} how `free`: any text comes before and between calls; `spell`: a text
 *   as bytes, or a mark as its code
 */
function callsOf({ begin, end, write, key }, tools, { several, free, spell }) {
  const mark = spell(begin);
  /** @param {string} name @param {Shape} shape */
  const member = (name, shape) => ({ name, shape, required: true });
  const types = new Set(['object']);
  const one = {
    types,
    anyOf: tools.map(({ name, shape }) => ({
      types,
      members: [member('name', { types: new Set(['string']), texts: [textOf(name)] }), member(key, shape)],
    })),
  };
  // A list of calls, or one that is the whole answer, ends it.
  // Models write white space after a call, too, and may end there.
  const more = { ends: true };
  const another = (/** @type {number} */ byte) => (free ? next : opening).next(byte);
  const after =
    !several || (write !== 'tagged' && write !== 'named') ? DONE : free ? new State(another, { ...more, free }) : spaced(another, more);
  /** What follows the mark. @type {State} */
  let rest;
  if (write === 'tagged') {
    const closing = oneOf([{ text: spell(/** @type {string} */ (end)), after }]);
    rest = startOf(
      one,
      spaced((byte) => closing.next(byte)),
    );
  } else if (write === 'named') {
    rest = oneOf(
      tools.map(({ name, shape }) => ({ text: Buffer.from(name).toString('latin1') + spell('[ARGS]'), after: startOf(shape, after) })),
    );
  } else if (write === 'list') {
    rest = startOf({ types: new Set(['array']), items: one, minItems: 1, maxItems: several ? Infinity : 1 }, after);
  } else rest = startOf(one, after);
  const opening = oneOf([{ text: mark, after: rest }]);
  const next = free ? until(mark, () => rest) : spaced((byte) => opening.next(byte));
  if (write !== 'bare') return next;
  if (!free) return rest;
  // What begins as an object is a call.
  const first = (/** @type {number} */ byte) => (byte === OPEN ? rest.next(byte) : SPACES.has(byte) ? begins : next.next(byte));
  const begins = new State(first, { ends: true, free: true });
  return begins;
}
