// Answers of JSON: the automaton against JSON.parse and the schema, the tokens that it allows, and answers of a model of random weights.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { queryObjects } from 'node:v8';
import OpenAI from 'openai';

import { loadModel, loadTokenizer, serveModel } from '../src/index.mjs';
import { Constraints } from '../src/infer/constraint.mjs';
import { Engine } from '../src/infer/engine.mjs';
import { ANY_OBJECT, DONE, State, shapeOf, startOf } from '../src/infer/grammar.mjs';
import { LanguageModel } from '../src/infer/model.mjs';
import { StepError } from '../src/infer/session.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { expected, fixture } from './fixtures/tokenizer-texts.mjs';
import { CHATML, all, scriptedEngine, textOf, writeTinyModel } from './lib/tiny-model.mjs';

/** Pseudorandom integers. @param {number} state */
const randomOf = (state) => (/** @type {number} */ below) => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % below;

/** Whether a text is whole, a beginning, or neither. @param {State} start @param {string | Uint8Array} text */
function read(start, text) {
  /** @type {State | null} */
  let state = start;
  for (const byte of Buffer.from(text)) {
    state = state.next(byte);
    if (!state) return 'wrong';
  }
  return state === DONE ? 'whole' : 'begun';
}

const SCHEMA = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  properties: {
    name: { type: 'string', description: 'of it' },
    kind: { enum: ['é', 1, 12, null, 'a"b', { x: [1] }] },
    sizes: { type: 'array', items: { type: 'integer' } },
    inner: { type: 'object', properties: { deep: { const: 'yes' } }, required: ['deep'], additionalProperties: false },
    share: { type: ['number', 'null'] },
    flag: { type: 'boolean' },
    any: {},
    nothing: { type: 'object', additionalProperties: false },
  },
  required: ['kind', 'inner'],
  additionalProperties: false,
};

/** Whether a value fits `SCHEMA`. @param {any} value */
function fits(value) {
  const names = Object.keys(SCHEMA.properties);
  const { name = '', kind, sizes = [], inner, share = null, flag = true, nothing = {} } = value;
  return (
    Object.keys(value).every((key, i, keys) => names.includes(key) && (i === 0 || names.indexOf(keys[i - 1]) < names.indexOf(key))) &&
    typeof name === 'string' &&
    SCHEMA.properties.kind.enum.some((each) => JSON.stringify(each) === JSON.stringify(kind)) &&
    Array.isArray(sizes) &&
    sizes.every(Number.isInteger) &&
    JSON.stringify(inner) === '{"deep":"yes"}' &&
    (share === null || typeof share === 'number') &&
    typeof flag === 'boolean' &&
    JSON.stringify(nothing) === '{}'
  );
}

test('any object of JSON is read, and what is no JSON ends at its first wrong byte', () => {
  const start = startOf(ANY_OBJECT);
  for (const value of [{}, { a: 1 }, { é: ['\u0000"\\🙂', -0.5, 1e-7, 1e21, true, false, null, [], {}, [[{ '': 0 }]]] }]) {
    for (const space of [undefined, 2, '\t']) assert.equal(read(start, JSON.stringify(value, null, space)), 'whole');
  }
  assert.equal(read(start, '{"a":0.5E+10,"b":"\\u00e9\\/"}'), 'whole');
  const wrong =
    '[|"|5|{a|{"a" |{"a":01|{"a":-}|{"a":1.}|{"a":1e}|{"a":1.e|{"a":+|{"a":1,}|{"a":[1,]|{"a":tru}|{"a":nulll|{"a":"\\x|{"a":"\\u00g|{"a":"\n|{}{|{},';
  for (const text of wrong.split('|')) {
    assert.equal(read(start, text), 'wrong', text);
    assert.equal(read(start, text.slice(0, -1)) === 'wrong', false, text);
  }
  // Bytes that are no UTF-8: a lone one, too long a form, half of a pair, beyond the last.
  for (const bytes of [[0x80], [0xc0], [0xc3, 0x28], [0xe0, 0x80], [0xed, 0xa0], [0xf0, 0x80], [0xf4, 0x90], [0xf5]])
    assert.equal(read(start, Uint8Array.from([...Buffer.from('{"a":"'), ...bytes])), 'wrong', String(bytes));
});

test('of what a schema says, whole texts fit it, and what does not is refused where that shows', () => {
  const start = startOf(shapeOf(SCHEMA, 'schema'));
  for (const text of [
    '{"kind":1,"inner":{"deep":"yes"}}',
    '{"name":"x","kind":"é","sizes":[],"inner":{"deep": "yes"},"share":-1.5e3,"flag":false,"any":{"b":[2.5]},"nothing":{}}',
    '{ "kind": 12, "sizes": [ -3, 0, 10 ],\n "inner": {\n  "deep": "yes"\n }, "share": null }',
    '{"kind":{"x":[1]},"inner":{"deep":"yes"},"any":"text"}',
  ])
    assert.equal(read(start, text), 'whole', text);
  for (const text of [
    '{}',
    '{"i',
    '{"kind":13',
    '{"kind":"b',
    '{"kind":1,"k',
    '{"kind":1}',
    '{"kind":1,"n',
    '{"kind":1,"sizes":[1.',
    '{"kind":1,"sizes":[1e',
    '{"kind":1,"sizes":["',
    '{"kind":1,"inner":{}',
    '{"kind":1,"inner":{"deep":"n',
    '{"kind":1,"inner":{"deep":"yes",',
    '{"kind":1,"inner":{"deep":"yes"},"share":"',
    '{"kind":1,"inner":{"deep":"yes"},"nothing":{"',
    '{"kind":1,"inner":{"deep":"yes"},"o',
    '{"o',
  ]) {
    assert.equal(read(start, text), 'wrong', text);
    assert.notEqual(read(start, text.slice(0, -1)), 'wrong', text);
  }
});

/** A text that bytes drawn at random make, of those that may come. @param {State} start @param {(below: number) => number} random */
function randomText(start, random) {
  const bytes = [];
  for (let state = start; state !== DONE; ) {
    const possible = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => state.next(byte));
    assert.ok(possible.length > 0, `nothing may follow ${Buffer.from(bytes)}`);
    // What ends a value is drawn more often, so that texts end.
    const ends = possible.filter((byte) => '"]}'.includes(String.fromCharCode(byte)));
    const from = ends.length > 0 && random(3) === 0 ? ends : possible;
    const byte = from[random(from.length)];
    bytes.push(byte);
    state = /** @type {State} */ (state.next(byte));
  }
  return Buffer.from(bytes);
}

test('whatever the automaton writes is UTF-8 and JSON that fits, and a state without an end does not come', () => {
  const random = randomOf(3);
  const [any, schema] = [startOf(ANY_OBJECT), startOf(shapeOf(SCHEMA, 'schema'))];
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let members = 0;
  for (let i = 0; i < 300; i++) {
    assert.equal(typeof JSON.parse(decoder.decode(randomText(any, random))), 'object');
    const value = JSON.parse(decoder.decode(randomText(schema, random)));
    assert.ok(fits(value), JSON.stringify(value));
    members += Object.keys(value).length;
  }
  assert.ok(members > 900, String(members));
});

test('a schema with something else is an error that names it', () => {
  for (const [schema, message] of /** @type {[any, string][]} */ ([
    [5, 's must be a JSON schema, got 5'],
    [{ oneOf: [] }, 's.oneOf is not supported; there are type, enum, const, properties, required, additionalProperties, items, minItems, '],
    [{ anyOf: [] }, 's.anyOf must be a list of schemas, got a list of 0'],
    [{ anyOf: [{}, { pattern: 'a' }] }, 's.anyOf[1].pattern is not supported; '],
    [{ type: 'string', anyOf: [{}] }, 's.type is not supported beside anyOf'],
    [{ $ref: '#/$defs/a', $defs: {}, enum: [1] }, 's.enum is not supported beside $ref'],
    [{ properties: { a: { type: 'string', minLength: 1 } } }, 's.properties.a.minLength is not supported; there are '],
    [{ items: { $ref: 'other.json' } }, 's.items.$ref must point into this schema, as #/$defs/name, got "other.json"'],
    [{ items: { $ref: '#/$defs/b' }, $defs: { a: {} } }, 's.items.$ref points to nothing, got "#/$defs/b"'],
    [{ $ref: '#/$defs/a', $defs: { a: { anyOf: [{ $ref: '#/$defs/a' }, {}] } } }, 's.$defs.a.anyOf[0].$ref points to itself'],
    [{ items: { $ref: '#/$defs/a' }, $defs: { a: { not: {} } } }, 's.$defs.a.not is not supported; '],
    [{ type: 'array', minItems: 2, maxItems: 1 }, 's.minItems must be at most maxItems, got 2'],
    [{ type: 'array', maxItems: -1 }, 's.maxItems must be an integer from 0 to 1000, got -1'],
    [{ type: 'number', minimum: 0 }, 's.minimum is supported of the type integer alone'],
    [{ type: 'integer', maximum: '5' }, 's.maximum must be a number, got "5"'],
    [{ type: 'integer', exclusiveMinimum: 1, maximum: 1.5 }, 's.exclusiveMinimum leaves no integer, got 1'],
    [{ type: 'text' }, 's.type must be of object, array, string, number, integer, boolean, null, got "text"'],
    [{ type: [] }, 's.type must be of object, '],
    [{ properties: [] }, 's.properties must be an object, got a list of 0'],
    [{ properties: { a: {} }, required: ['b'] }, 's.required must be a list of names of properties, got "b"'],
    [{ required: 'a' }, 's.required must be a list of names of properties, got "a"'],
    [{ properties: {}, additionalProperties: true }, 's.additionalProperties must be false beside properties, got true'],
    [{ additionalProperties: { type: 'text' } }, 's.additionalProperties.type must be of object, '],
    [{ enum: 'a' }, 's.enum must be a list, got "a"'],
    [{ enum: [] }, 's.enum has no value of its type'],
    [{ type: 'string', const: 5 }, 's.const has no value of its type'],
    [{ type: 'integer', enum: [3, 200], maximum: 2 }, 's.enum has no value of its type and bounds'],
  ])) {
    assert.throws(
      () => shapeOf(schema, 's'),
      (error) => error instanceof RangeError && error.message.startsWith(message),
      message,
    );
  }
});

test('alternatives, definitions, counts of items and ranges, as clients write them', () => {
  // As pydantic and Zod write what may be null, and a class in a class; with a class in itself.
  const node = {
    type: 'object',
    properties: { value: { anyOf: [{ type: 'integer', minimum: -5, maximum: 120 }, { type: 'null' }] }, next: { $ref: '#/$defs/Next' } },
    required: ['value'],
    additionalProperties: false,
  };
  const schema = {
    $defs: { Node: node, Next: { anyOf: [{ $ref: '#/$defs/Node' }, { type: 'null' }], default: null }, 'a/b~': { const: 'x' } },
    type: 'object',
    properties: {
      first: { $ref: '#/$defs/Node', description: 'of all' },
      tags: { type: 'array', items: { $ref: '#/$defs/a~1b~0' }, minItems: 1, maxItems: 3 },
      more: { type: 'array', items: { type: 'boolean' }, minItems: 2 },
      any: { anyOf: [{ type: 'string' }, { type: 'number' }, { type: 'array', items: { type: 'integer' } }] },
      counts: { type: 'object', additionalProperties: { type: 'integer', exclusiveMinimum: 0 } },
    },
    required: ['first'],
    additionalProperties: false,
  };
  const start = startOf(shapeOf(schema, 's'));
  for (const text of [
    '{"first":{"value":-5,"next":{"value":null,"next":null}}}',
    '{"first":{"value":0},"tags":["x"],"more":[true,false],"any":"a","counts":{}}',
    '{"first":{"value":120},"tags":["x","x","x"],"more":[true,false,true,true],"any":1.5,"counts":{"a":1,"b":9007199254740991}}',
    '{"first":{"value":99},"any":[1, 2]}',
  ])
    assert.equal(read(start, text), 'whole', text);
  for (const text of [
    '{"first":{"value":"',
    '{"first":{"value":-6',
    '{"first":{"value":121',
    '{"first":{"value":-0',
    '{"first":{"value":00',
    '{"first":{"value":1.',
    '{"first":{"value":1,"next":{"n',
    '{"first":{"value":1},"tags":[]',
    '{"first":{"value":1},"tags":["x","x","x",',
    '{"first":{"value":1},"more":[true]',
    '{"first":{"value":1},"any":t',
    '{"first":{"value":1},"any":[1.',
    '{"first":{"value":1},"counts":{"a":0',
    '{"first":{"value":1},"counts":{"a":9007199254740992',
  ]) {
    assert.equal(read(start, text), 'wrong', text);
    assert.notEqual(read(start, text.slice(0, -1)), 'wrong', text);
  }
  for (const [minimum, maximum] of [
    [-12, 7],
    [0, 0],
    [95, 1105],
    [-1000, -99],
    [-1, 100],
  ]) {
    const range = startOf(shapeOf({ type: 'array', items: { type: 'integer', minimum, maximum } }, 's'));
    for (let value = -1200; value <= 1200; value++)
      assert.equal(read(range, `[${value}]`) === 'whole', value >= minimum && value <= maximum, `${value} from ${minimum} to ${maximum}`);
  }
  // Integers far from the bounds share their states.
  const safe = startOf(
    shapeOf({ type: 'array', items: { type: 'integer', minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER } }, 's'),
  );
  const after = (/** @type {string} */ text) =>
    [...Buffer.from(text)].reduce((state, byte) => /** @type {State} */ (state.next(byte)), safe);
  assert.equal(after('[123'), after('[456'));
  assert.notEqual(after('[123'), after('[-456'));
  const random = randomOf(7);
  for (let i = 0; i < 200; i++) {
    const { first, tags = ['x'], more = [1, 2], counts = {} } = JSON.parse(randomText(start, random).toString());
    for (let each = first; each; each = each.next) assert.ok(each.value === null || (each.value >= -5 && each.value <= 120));
    assert.ok(tags.length >= 1 && tags.length <= 3 && more.length >= 2);
    assert.ok(Object.values(counts).every((count) => Number.isSafeInteger(count) && Number(count) > 0));
  }
});

test('references to references, to themselves by a list, and by codes: the shape at the end', () => {
  const $defs = {
    b: { type: 'object', properties: { x: { anyOf: [{ $ref: '#/$defs/a' }, { type: 'null' }] } }, required: ['x'] },
    a: { $ref: '#/$defs/%62' },
  };
  const start = startOf(shapeOf({ $ref: '#/$defs/b', $defs: { ...$defs, a: { $ref: '#/$defs/b' } } }, 's'));
  assert.equal(read(startOf(shapeOf({ $ref: '#/$defs/a', $defs }, 's')), '{"x": {"x": {"x": null}}}'), 'whole');
  assert.equal(read(start, '{"x": {"x": {"x": null}}}'), 'whole');
  assert.equal(read(start, '{"x": {"x": {}'), 'wrong');
});

/** States after each byte of a text. @param {State} start @param {string} text */
function statesOf(start, text) {
  const states = [start];
  for (const byte of Buffer.from(text)) states.push(/** @type {State} */ (states[states.length - 1].next(byte)));
  return states;
}

test('alternatives that fit alike do not multiply: in a text, in each other, and by reference', () => {
  const text = { type: 'string' };
  const two = {
    anyOf: [
      { type: 'object', properties: { a: text } },
      { type: 'object', properties: { a: text, b: text } },
    ],
  };
  const states = statesOf(startOf(shapeOf({ type: 'object', properties: { two } }, 's')), '{"two":{"a":"some words"');
  const [inside] = states.slice(-12);
  // Else every character of a text would be a new place.
  assert.ok(inside.all.length === 2 && states.slice(-11, -1).every((state) => state === inside));

  // Two lists in two lists …: 2^40 ways.
  const n = {
    anyOf: [{ type: 'array', items: { $ref: '#/$defs/n' } }, { type: 'array', items: { $ref: '#/$defs/n' }, maxItems: 2 }, text],
  };
  const nested = startOf(shapeOf({ type: 'object', properties: { n: { $ref: '#/$defs/n' } }, $defs: { n } }, 's'));
  const deep = statesOf(nested, `{"n":${'['.repeat(40)}"a",[],"b"`);
  assert.ok(deep.every(({ all }) => all.length <= 6));
  assert.equal(read(nested, `{"n":${'['.repeat(40)}"a",[],"b"${']'.repeat(40)}}`), 'whole');
  assert.equal(read(nested, '{"n":[["a","b","c"],[[]],"d",[1'), 'wrong');

  // Ten of ten of ten …: 10^8.
  const $defs = Object.fromEntries(
    Array.from({ length: 9 }, (_, i) => [`n${i}`, i === 8 ? text : { anyOf: Array(10).fill({ $ref: `#/$defs/n${i + 1}` }) }]),
  );
  assert.equal(read(startOf(shapeOf({ type: 'object', properties: { n: { $ref: '#/$defs/n0' } }, $defs }, 's')), '{"n":"a"}'), 'whole');
  assert.throws(
    () => shapeOf({ anyOf: Array.from({ length: 101 }, () => ({})) }, 's'),
    /^RangeError: s\.anyOf has more than 100 alternatives$/,
  );
});

test('of thousands of members only those that are written are made', () => {
  let made = 0;
  const shape = {
    ...ANY_OBJECT,
    get types() {
      made++;
      return new Set(['null']);
    },
  };
  const members = Array.from({ length: 3000 }, (_, i) => ({ name: `m${i}`, shape, required: i === 2000 }));
  const start = startOf({ ...ANY_OBJECT, members });
  assert.equal(read(start, '{"m5":null,"m1999":null,"m2000":null,"m2999":null}'), 'whole');
  assert.equal(read(start, '{"m5":null}'), 'wrong');
  assert.equal(read(start, '{"m2001'), 'wrong');
  assert.ok(made < 20, String(made));
});

test('the bytes of tokens are those of the text, for tokenizers of every kind', () => {
  const line = 'Call me Ishmael: {"a": [1, "né 🙂 日本"]}\n  the end';
  for (const name of Object.keys(expected.ids).filter((each) => each !== 'bert' && each !== 'holes')) {
    const json = JSON.parse(readFileSync(fixture(name), 'utf8'));
    // The fixture has bytes as special tokens, which are not printed; Llama's own has not.
    const added = json.added_tokens.filter((/** @type {{ content: string }} */ { content }) => !content.startsWith('<0x'));
    const tokenizer = loadTokenizer({ ...json, added_tokens: added });
    const ids = [...tokenizer.encode(line, { addSpecial: false })];
    const text = Buffer.concat(ids.map((id) => /** @type {Uint8Array} */ (tokenizer.bytesOf(id)))).toString();
    assert.equal(text.trimStart(), line, name);
    assert.equal(tokenizer.bytesOf(tokenizer.vocabSize), undefined);
  }
  assert.ok(new Constraints(loadTokenizer(fixture('gpt2'))));
  assert.throws(() => new Constraints(loadTokenizer(fixture('holes'))), /^RangeError: the tokenizer has no token for the byte 35$/);
  const llama = loadTokenizer(fixture('llama3'));
  const end = /** @type {number} */ (llama.idOf('<|endoftext|>'));
  assert.deepEqual([llama.tokenOf(end), llama.bytesOf(end)], ['<|endoftext|>', undefined]);
});

const base = temporaryFolder();
const TINY = join(base, 'tiny');
/** @type {import('../src/infer/model.mjs').LanguageModel} */
let model;
before(async () => {
  await writeTinyModel(TINY, { template: CHATML, context: 512 });
  model = await loadModel(TINY, { slots: 3 });
});
after(() => model.dispose());

test('the tokens that may come are those whose bytes may, after every token of a text', () => {
  const { tokenizer } = model;
  const constraint = new Constraints(tokenizer).of(SCHEMA, 'json');
  const start = startOf(shapeOf(SCHEMA, 'json'));
  const text = '{"name": "the old men\\n", "kind": 12, "sizes": [10, 2], "inner": {"deep": "yes"}, "flag": true}';
  const ids = tokenizer.encode(text);
  let [written, allowedOnce] = [/** @type {number[]} */ ([]), 0];
  for (const [i, id] of ids.entries()) {
    const allowed = constraint.allowed();
    assert.equal(constraint.allowed(), allowed);
    for (let token = 0; token < tokenizer.vocabSize; token++) {
      const bytes = tokenizer.bytesOf(token);
      const may = bytes !== undefined && bytes.length > 0 && read(start, Uint8Array.from([...written, ...bytes])) !== 'wrong';
      assert.equal(
        (allowed[token >> 5] >>> (token & 31)) & 1,
        Number(may),
        `${text.slice(0, written.length)} | ${tokenizer.tokenOf(token)}`,
      );
      allowedOnce += Number(may);
    }
    written = [...written, .../** @type {Uint8Array} */ (tokenizer.bytesOf(id))];
    assert.equal(constraint.accept(id), i === ids.length - 1 ? 'stop' : null);
  }
  assert.ok(allowedOnce > 1000);
});

test('tokens that end an answer are no part of one, though they have a text; nor are ids that the model has not', () => {
  const engine = scriptedEngine(TINY, { answer: () => [] });
  const id = (/** @type {string} */ text) => engine.tokenizer.encode(text)[0];
  const [end, other] = [id('the'), id('men')];
  for (const [changes, given] of /** @type {[object, number[]][]} */ ([
    [{}, [end, other]],
    [{ eos: [end] }, [other]],
    [{ vocabSize: Math.max(end, other) }, [Math.min(end, other)]],
  ])) {
    Object.assign(engine.config, { eos: [0], vocabSize: engine.tokenizer.vocabSize }, changes);
    const constraint = new LanguageModel(engine).checkJson(true);
    for (const text of '{"') constraint.accept(id(text));
    const allowed = constraint.allowed();
    assert.deepEqual(
      [end, other].filter((token) => (allowed[token >> 5] >>> (token & 31)) & 1),
      given,
    );
  }
});

test('answers that nest in ever new ways leave no states behind', () => {
  const random = randomOf(5);
  const { tokenizer } = model;
  const constraints = new Constraints(tokenizer);
  const [list, object] = ['[', '{"a":'].map((text) => [...tokenizer.encode(text)]);
  const answer = () => {
    const constraint = constraints.of(true, 'json');
    for (let i = 0; i < 60; i++) {
      for (const token of i > 0 && random(7) < 3 ? list : object) {
        constraint.allowed();
        constraint.accept(token);
      }
    }
  };
  const states = () => Number(queryObjects(State, { format: 'count' }));
  const before = states();
  answer();
  const one = states() - before;
  for (let i = 0; i < 60; i++) answer();
  const left = states() - before;
  assert.ok(one > 100 && left < 10 * one, `${one}, ${left}`);
});

test('an answer that nests without an end is cut, and one that nothing may follow is an error', () => {
  const { tokenizer } = model;
  const n = { type: 'array', items: { $ref: '#/$defs/n' }, minItems: 1 };
  const schema = { type: 'object', properties: { n: { $ref: '#/$defs/n' } }, $defs: { n } };
  const constraint = new Constraints(tokenizer).of(schema, 'json');
  for (const id of tokenizer.encode('{"n":')) constraint.accept(id);
  const [open] = tokenizer.encode('[');
  const ends = Array.from({ length: 256 }, () => constraint.accept(open));
  assert.ok(ends.slice(0, 255).every((end) => end === null));
  assert.equal(ends[255], 'length');
  const nothing = new Constraints(tokenizer).by('nothing', () => new State(() => null));
  assert.throws(() => nothing.allowed(), /^RangeError: no token may follow the text of this form$/);
});

test('a constraint that fails ends its answer alone', async () => {
  const engine = await Engine.open(TINY, { slots: 3 });
  const one = new LanguageModel(engine);
  const answer = (/** @type {import('../src/infer/types.mjs').Constraint} */ constraint, seed = 1) =>
    all(one.generate('the sea', { ...OPTIONS, maxTokens: 30, seed }, constraint));
  const any = { allowed: () => new Uint32Array(10).fill(0xffffffff), accept: () => null };
  const expected = textOf(await answer(any));
  for (const failing of [0, 1, 5]) {
    for (const name of /** @type {const} */ (['allowed', 'accept'])) {
      let calls = 0;
      const wrong = () => {
        if (calls++ === failing) throw new Error('made here');
        return any[name]();
      };
      const constraint = { ...any, [name]: wrong };
      const [text] = await Promise.all([answer(any).then(textOf), assert.rejects(answer(constraint, 2), /^Error: made here$/)]);
      assert.equal(text, expected);
    }
  }
  assert.equal(textOf(await answer(any)), expected);
  await engine.dispose();
});

test('an answer of JSON takes a step for each token but the first, and leaves its slot free', async () => {
  const engine = await Engine.open(TINY, { slots: 2 });
  const { session } = engine;
  let steps = 0;
  const step = session.step.bind(session);
  session.step = (rows, keys) => {
    steps++;
    return step(rows, keys);
  };
  const one = new LanguageModel(engine);
  const schema = { type: 'object', properties: { kind: { enum: ['a', 'b'] } }, required: ['kind'] };
  for (const [maxTokens, reason] of /** @type {const} */ ([
    [400, 'stop'],
    [5, 'length'],
  ])) {
    steps = 0;
    const parts = await all(one.generate('the sea', { ...OPTIONS, maxTokens, seed: 1, json: schema }));
    // The loop has its last turn.
    await new Promise((done) => setImmediate(done));
    assert.deepEqual([parts.at(-1)?.finishReason, steps], [reason, parts.length - 1]);
    assert.ok(engine.rows.every(({ sequence }) => sequence === undefined));
    assert.equal(session.sampler.constrained.size, 0);
  }
  await engine.dispose();
});

test('what an answer may have is gone with it, and is the same where a step is taken back', async () => {
  const engine = await Engine.open(TINY, { slots: 3 });
  const { session } = engine;
  const two = new LanguageModel(engine);
  const answer = async (/** @type {object} */ options) =>
    (await all(two.generate('the sea', { ...OPTIONS, maxTokens: 30, ...options }))).map(({ token }) => token);
  const asked = [{ seed: 1 }, { seed: 2, json: true }, { seed: 3, json: SCHEMA, topLogprobs: 2 }];
  const alone = [];
  for (const options of asked) alone.push(await answer(options));

  // Left in its middle, at each of some places: the slot then has every token again.
  for (let count = 1; count < 5; count++) {
    const parts = two.generate('the sea', { ...OPTIONS, seed: 2, json: true });
    for (let i = 0; i < count; i++) await parts.next();
    await parts.return();
    assert.deepEqual(await Promise.all([1, 1, 1].map((seed) => answer({ seed }))), [alone[0], alone[0], alone[0]]);
  }

  const step = session.step.bind(session);
  for (const failing of [1, 2, 7]) {
    let steps = 0;
    session.step = async (rows, keys) => {
      const sampled = await step(rows, keys);
      if (++steps === failing) throw new StepError('made here');
      return sampled;
    };
    assert.deepEqual(await Promise.all(asked.map(answer)), alone, `step ${failing}`);
    assert.ok(steps >= failing);
  }
  await engine.dispose();
});

const OPTIONS = { maxTokens: 400, temperature: 1, topK: 0, topP: 1, minP: 0 };

test('a model of random weights writes JSON that fits, and answers beside it stay what they are', async () => {
  const plain = (/** @type {number} */ seed) => all(model.generate('the old', { ...OPTIONS, maxTokens: 60, seed }));
  const alone = [await plain(1), await plain(2)];
  const json = async (/** @type {number} */ seed, /** @type {true | object} */ schema) =>
    all(model.generate('the sea', { ...OPTIONS, seed, json: schema, topLogprobs: 3 }));
  let whole = 0;
  for (let seed = 0; seed < 8; seed++) {
    // In three slots at once: those beside it begin before, and end before or after.
    const [first, answer, second] = await Promise.all([plain(1), json(seed, seed % 2 ? SCHEMA : true), plain(2)]);
    assert.deepEqual([textOf(first), textOf(second)], alone.map(textOf));
    const last = answer.at(-1);
    assert.ok(!answer.some(({ token }) => model.stopIds.includes(token)));
    if (last?.finishReason !== 'stop') {
      assert.deepEqual([last?.finishReason, answer.length], ['length', 400]);
      assert.notEqual(read(startOf(seed % 2 ? shapeOf(SCHEMA, 's') : ANY_OBJECT), textOf(answer)), 'wrong');
      continue;
    }
    whole++;
    const value = JSON.parse(textOf(answer));
    assert.ok(seed % 2 ? fits(value) : typeof value === 'object', textOf(answer));
    // What may not come is not listed either.
    const total = answer[0].topLogprobs?.reduce((sum, { logprob }) => sum + Math.exp(logprob), 0) ?? 0;
    assert.ok(
      answer[0].topLogprobs?.every(({ token }) => ' \n\r\t{'.includes(model.tokenizer.decode([token]).trimEnd().slice(-1))),
      `${total}`,
    );
  }
  assert.ok(whole >= 3, String(whole));
  assert.deepEqual(await plain(1), alone[0]);
  assert.throws(() => model.generate('a', { json: { type: 'array' } }), { option: 'json', message: 'json.type must be object' });
  // Of any size and depth, and in a circle.
  /** @type {any} */
  let deep = {};
  for (let i = 0; i < 1e5; i++) deep = { type: 'array', items: deep };
  const wide = { type: 'object', properties: Object.fromEntries(Array.from({ length: 9000 }, (_, i) => [`name ${i}`, {}])) };
  const circle = { type: 'object', properties: /** @type {any} */ ({}) };
  circle.properties.circle = circle;
  /** @type {any} */
  let lists = {};
  for (let i = 0; i < 3000; i++) lists = { items: lists };
  assert.throws(() => model.generate('a', { json: { type: 'object', properties: { lists } } }), {
    option: 'json',
    message: /^json\.properties\.lists\.items\.items\.\S+… is in more than 200 other schemas$/,
  });
  for (const schema of [{ type: 'object', properties: { deep } }, wide, circle])
    assert.throws(() => model.generate('a', { json: schema }), {
      option: 'json',
      message: 'json must be JSON of at most 65536 characters, and not nested too deeply',
    });
  assert.throws(() => model.generate('a', { json: /** @type {any} */ (5) }), {
    option: 'json',
    message: /true, false or a JSON schema, got 5$/,
  });
});

test('response_format: JSON and a schema, whole and as a stream; what is wrong names itself', async (t) => {
  const server = await serveModel(model, { port: 0, name: 'tiny' });
  t.after(() => server.close());
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const schema = { type: 'object', properties: { kind: { enum: ['a', 'b'] } }, required: ['kind'], additionalProperties: false };
  const asked = {
    model: 'tiny',
    messages: [{ role: /** @type {const} */ ('user'), content: 'hi' }],
    temperature: 1,
    seed: 5,
    max_tokens: 400,
  };
  const format = { type: /** @type {const} */ ('json_schema'), json_schema: { name: 'kinds', strict: true, schema } };
  const { choices } = await client.chat.completions.create({ ...asked, n: 3, response_format: format });
  for (const { message, finish_reason: reason } of choices) {
    assert.equal(reason, 'stop');
    assert.match(JSON.parse(message.content ?? '').kind, /^[ab]$/);
  }
  const stream = await client.chat.completions.create({ ...asked, stream: true, response_format: format });
  assert.equal((await all(stream)).map(({ choices: [choice] }) => choice.delta.content ?? '').join(''), choices[0].message.content);
  const object = await client.chat.completions.create({ ...asked, response_format: { type: 'json_object' } });
  const start = startOf(ANY_OBJECT);
  assert.equal(read(start, object.choices[0].message.content ?? ''), object.choices[0].finish_reason === 'stop' ? 'whole' : 'begun');

  const tools = [{ type: 'function', function: { name: 'f' } }];
  for (const [body, param, message] of /** @type {[any, string, RegExp][]} */ ([
    [{ response_format: 'json' }, 'response_format', /^response_format must be an object, got "json"$/],
    [{ response_format: { type: 'xml' } }, 'response_format.type', /must be text, json_object or json_schema, got "xml"$/],
    [{ response_format: { type: 'json_schema' } }, 'response_format.json_schema', /must be { name, schema }, got undefined$/],
    [
      {
        response_format: {
          type: 'json_schema',
          json_schema: { name: 'n', schema: { type: 'object', properties: { a: { format: 'date' } } } },
        },
      },
      'response_format',
      /^response_format\.json_schema\.schema\.properties\.a\.format is not supported; there are type, /,
    ],
    [{ response_format: { type: 'json_schema', json_schema: { schema: {} } } }, 'response_format', /schema\.type must be object$/],
    [{ tools, response_format: { type: 'json_object' } }, 'tools', /has no tools$/],
  ])) {
    await assert.rejects(client.chat.completions.create({ ...asked, ...body }), (error) => {
      assert.ok(error instanceof OpenAI.APIError);
      assert.deepEqual([error.status, error.param], [400, param]);
      assert.match(error.message.replace(/^400 /, ''), message);
      return true;
    });
  }
});
