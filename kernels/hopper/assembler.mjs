// A small assembler for PTX: typed registers, parameters in one packed block, and branches that whole warps take.
//
// A program is written as JavaScript that emits instructions: `p.b32('add.u32', x, 1)` defines a fresh register by an
// instruction and returns its name; `p.do('st.global.b32', `[${address}]`, x)` emits one that defines none.

/** @typedef {'b16' | 'b32' | 'b64' | 'f32' | 'pred'} RegisterType */
/** @typedef {string | number} Operand a register, a literal, or an address in brackets */
/** @typedef {{ name: string, type: 'u64' | 'u32' | 'f32' }} Parameter */

/** Bytes of a parameter. @param {Parameter['type']} type */
const sizeOf = (type) => (type === 'u64' ? 8 : 4);

/**
 * The byte offsets of parameters, which are packed in order, each aligned to its size.
 * @param {readonly Parameter[]} parameters
 */
export function parameterLayout(parameters) {
  /** @type {Record<string, number>} */
  const offsets = {};
  let size = 0;
  for (const { name, type } of parameters) {
    size = Math.ceil(size / sizeOf(type)) * sizeOf(type);
    offsets[name] = size;
    size += sizeOf(type);
  }
  return { offsets, size };
}

/**
 * Packs the parameters of a launch.
 * @param {readonly Parameter[]} parameters @param {Record<string, number | bigint>} values one for each parameter
 */
export function packParameters(parameters, values) {
  const { offsets, size } = parameterLayout(parameters);
  const block = new DataView(new ArrayBuffer(size));
  for (const { name, type } of parameters) {
    const value = values[name];
    if (value === undefined) throw new TypeError(`packParameters: no value for ${name}`);
    if (type === 'u64') block.setBigUint64(offsets[name], BigInt(value), true);
    else if (type === 'u32') block.setUint32(offsets[name], Number(value), true);
    else block.setFloat32(offsets[name], Number(value), true);
  }
  return new Uint8Array(block.buffer);
}

/** An f32 literal in PTX's exact (hexadecimal) form. @param {number} x */
export function f32(x) {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, x);
  return `0f${view.getUint32(0).toString(16).padStart(8, '0').toUpperCase()}`;
}

/** A vector operand. @param {readonly Operand[]} members */
export const vector = (members) => `{${members.join(', ')}}`;

/** A memory operand. @param {Operand} register @param {number} [offset] bytes */
export const at = (register, offset = 0) => (offset ? `[${register}+${offset}]` : `[${register}]`);

const PREFIX = { b16: '%h', b32: '%r', b64: '%d', f32: '%f', pred: '%p' };

export class Program {
  /** @type {string[]} */
  #lines = [];
  #counts = { b16: 0, b32: 0, b64: 0, f32: 0, pred: 0 };
  #labels = 0;
  #guard = '';
  #layout;

  /**
   * @param {object} options
   * @param {string} options.name name of the entry
   * @param {number} options.threads threads of a block
   * @param {readonly Parameter[]} options.parameters
   * @param {number} options.shared bytes of shared memory, at the symbol `shared`
   * @param {number} [options.blocks] blocks that a multiprocessor holds at a time, which limits the registers of a thread; 1 when left out
   */
  constructor({ name, threads, parameters, shared, blocks = 1 }) {
    this.name = name;
    this.blocks = blocks;
    this.threads = threads;
    this.parameters = parameters;
    this.shared = shared;
    this.#layout = parameterLayout(parameters);
  }

  /** Emits an instruction. @param {string} instruction @param {...Operand} operands */
  do(instruction, ...operands) {
    this.#lines.push(`  ${this.#guard}${instruction}${operands.length ? ` ${operands.join(', ')}` : ''};`);
  }

  /** @param {string} text */
  comment(text) {
    this.#lines.push(`  // ${text}`);
  }

  /** Declares a register. @param {RegisterType} type */
  register(type) {
    return `${PREFIX[type]}${this.#counts[type]++}`;
  }

  /** Declares registers. @param {RegisterType} type @param {number} count */
  registers(type, count) {
    return Array.from({ length: count }, () => this.register(type));
  }

  /** @param {RegisterType} type @param {string} instruction @param {Operand[]} operands */
  #define(type, instruction, operands) {
    const register = this.register(type);
    this.do(instruction, register, ...operands);
    return register;
  }

  /** @param {string} instruction @param {...Operand} operands */
  b32(instruction, ...operands) {
    return this.#define('b32', instruction, operands);
  }
  /** @param {string} instruction @param {...Operand} operands */
  b64(instruction, ...operands) {
    return this.#define('b64', instruction, operands);
  }
  /** @param {string} instruction @param {...Operand} operands */
  f32(instruction, ...operands) {
    return this.#define('f32', instruction, operands);
  }
  /** @param {string} instruction @param {...Operand} operands */
  pred(instruction, ...operands) {
    return this.#define('pred', instruction, operands);
  }

  /** Loads a parameter. @param {string} name */
  parameter(name) {
    const { type } = /** @type {Parameter} */ (this.parameters.find((p) => p.name === name));
    return this.load(this.register(type === 'u64' ? 'b64' : type === 'f32' ? 'f32' : 'b32'), name);
  }

  /** Loads a parameter into a register and returns that. @param {string} register @param {string} name */
  load(register, name) {
    const { type } = /** @type {Parameter} */ (this.parameters.find((p) => p.name === name));
    this.do(`ld.param.${type}`, register, `[block+${this.#layout.offsets[name]}]`);
    return register;
  }

  /** Emits `body` with each instruction guarded by a predicate, lane by lane. @param {string} predicate @param {() => void} body */
  guarded(predicate, body) {
    if (this.#guard) throw new Error('guards do not nest');
    this.#guard = `@${predicate} `;
    body();
    this.#guard = '';
  }

  label() {
    return `L${this.#labels++}`;
  }
  /** @param {string} label */
  place(label) {
    this.#lines.push(`${label}:`);
  }
  /** A branch that either all lanes of a warp take or none. @param {string} label @param {string} [predicate] `!%p` negates */
  branch(label, predicate) {
    this.#lines.push(`  ${predicate ? `@${predicate} ` : ''}bra.uni ${label};`);
  }

  /** Branches around `body` unless the predicate holds, which must be the same in a whole warp. @param {string} predicate @param {() => void} body */
  when(predicate, body) {
    const end = this.label();
    this.branch(end, predicate.startsWith('!') ? predicate.slice(1) : `!${predicate}`);
    body();
    this.place(end);
  }

  /** Repeats `body` until that branches to the label it is given. @param {(exit: string) => void} body */
  loop(body) {
    const [start, exit] = [this.label(), this.label()];
    this.place(start);
    body(exit);
    this.branch(start);
    this.place(exit);
  }

  /** The entry's text, without the module's header. */
  toString() {
    const declare = Object.entries(this.#counts)
      .filter(([, count]) => count > 0)
      .map(([type, count]) => `  .reg .${type} ${PREFIX[/** @type {RegisterType} */ (type)]}<${count}>;`);
    return [
      `.visible .entry ${this.name}(.param .align 8 .b8 block[${this.#layout.size}])`,
      `.reqntid ${this.threads}, 1, 1`,
      `.minnctapersm ${this.blocks}`,
      '{',
      ...declare,
      `  .shared .align 1024 .b8 shared[${this.shared}];`,
      ...this.#lines,
      '}',
      '',
    ].join('\n');
  }
}

/** The text of a module. @param {...(Program | string)} entries */
export const moduleText = (...entries) => ['.version 8.3', '.target sm_90a', '.address_size 64', '', ...entries.map(String)].join('\n');
