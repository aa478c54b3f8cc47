// Tools of a chat: what a request says of them, how the calls of a model look, and calls in the text of an answer.

import { randomInt } from 'node:crypto';

import { StopFinder } from '../infer/stops.mjs';
import { shown } from '../options.mjs';
import { flag, isObject, read, wrong } from './fields.mjs';

/** @typedef {import('../infer/model.mjs').LanguageModel} LanguageModel */
/** @typedef {import('../infer/model.mjs').Part} Part */
/** @typedef {import('./fields.mjs').Body} Body */
/** `arguments`: JSON. @typedef {{ id: string, type: 'function', function: { name: string, arguments: string } }} ToolCall */

/**
 * How a family of models writes calls: the text before one, the text after it, and whether an answer that begins with `{` is one. `marks`: which of
 * these texts may be special tokens, which are printed then. `write`: what is between the marks, each call in marks of its own (`tagged`), a list
 * (`list`), the name before the arguments (`named`), or one call that may lack its mark (`bare`); `key`: the arguments' name in it.
 * @typedef {{ begin: string, end: string | undefined, bare: boolean, marks: readonly string[], write: 'tagged' | 'list' | 'named' | 'bare',
 *   key: 'arguments' | 'parameters' }} CallForm
 *
 * The tools that an answer may call. `list`: with the place of each in the request; `required`: the answer must be a call; `several`: it may have more
 * than one; `marks`: ids to print; `finder`: makes what finds the calls in an answer.
 * @typedef {{ list: { tool: Body & { function: any }, at: string }[], form: CallForm, required: boolean, several: boolean, marks: number[],
 *   finder: () => CallFinder }} Tools
 */

const MISTRAL = /** @type {const} */ ({
  begin: '[TOOL_CALLS]',
  end: '[TOOL_CALLS]',
  bare: false,
  marks: ['[TOOL_CALLS]', '[ARGS]'],
  key: 'arguments',
});

/** The forms, and the template's text from which they are known. @type {{ has: RegExp, lacks?: RegExp, form: CallForm }[]} */
const FORMS = [
  // Mistral: [TOOL_CALLS][{"name": …, "arguments": …}, …], and since the tokenizer's version 11 [TOOL_CALLS]name[ARGS]{…} for each.
  { has: /\[TOOL_CALLS\][^]*\[ARGS\]/, form: { ...MISTRAL, write: 'named' } },
  { has: /\[TOOL_CALLS\]/, form: { ...MISTRAL, write: 'list' } },
  // Qwen and Hermes: <tool_call>{"name": …, "arguments": …}</tool_call>. Those of Qwen's coders have other tags inside.
  {
    has: /<tool_call>/,
    lacks: /<function=|<arg_key>/,
    form: {
      ...{ begin: '<tool_call>', end: '</tool_call>', bare: false, marks: ['<tool_call>', '</tool_call>'] },
      ...{ write: 'tagged', key: 'arguments' },
    },
  },
  // Llama 3: {"name": …, "parameters": …} is the whole answer.
  {
    has: /ipython/,
    form: { begin: '<|python_tag|>', end: undefined, bare: true, marks: ['<|python_tag|>'], write: 'bare', key: 'parameters' },
  },
];

/** An error about `tool_choice`. @param {string} more @param {string} message */
const wrongChoice = (more, message) => wrong(`tool_choice${more}`, `tool_choice${more} ${message}`);

/**
 * The tools of a chat: undefined where an answer may call none.
 * @param {Body} body @param {LanguageModel} model that has a template
 * @returns {Tools | undefined}
 */
export function toolsOf(body, model) {
  const tools = read(body, 'tools', Array.isArray, 'a list of tools') ?? [];
  for (const [i, tool] of tools.entries()) checkTool(tool, `tools[${i}]`);
  const all = tools.map((tool, i) => ({ tool, at: `tools[${i}]` }));
  const { mode, names, once = false } = choiceOf(body.tool_choice ?? 'auto', all);
  const several = flag(body, 'parallel_tool_calls', true);
  if (tools.length === 0 || mode === 'none') return undefined;
  const { chatTemplates } = model.tokenizer;
  const template = chatTemplates.tool_use ?? chatTemplates.default;
  if (!/\btools\b/.test(template)) throw wrong('tools', "the model's chat template has no tools", 'no_tools');
  const form = FORMS.find(({ has, lacks }) => has.test(template) && !lacks?.test(template))?.form;
  if (!form) throw wrong('tools', "the model's chat template has calls in a form that is not known", 'no_tools');
  return {
    list: all.filter(({ tool }) => names?.includes(tool.function.name) ?? true),
    form,
    required: mode === 'required',
    several: several && !once,
    marks: form.marks.flatMap((mark) => model.tokenizer.idOf(mark) ?? []),
    finder: () => new CallFinder(form, several),
  };
}

/**
 * What `tool_choice` says: whether there must be a call, and of which tools where not of any.
 * @param {unknown} choice @param {Tools['list']} all @returns {{ mode: string, names?: string[], once?: boolean }} `once`: one function that is named
 */
function choiceOf(choice, all) {
  const known = all.map(({ tool }) => tool.function.name);
  /** @param {unknown} name @param {string} more */
  const check = (name, more) => {
    if (!known.includes(name)) throw wrongChoice(more, `must be the name of one of the tools, got ${shown(name)}`);
    return /** @type {string} */ (name);
  };
  if (choice === 'none' || choice === 'auto') return { mode: choice };
  if (choice === 'required') {
    if (all.length === 0) throw wrongChoice('', 'must be "auto" or "none" without tools, got "required"');
    return { mode: choice };
  }
  const { type, function: named, allowed_tools: allowed } = isObject(choice) ? choice : {};
  if (type === 'function' && isObject(named)) return { mode: 'required', names: [check(named.name, '.function.name')], once: true };
  if (
    type === 'allowed_tools' &&
    isObject(allowed) &&
    (allowed.mode === 'auto' || allowed.mode === 'required') &&
    Array.isArray(allowed.tools) &&
    allowed.tools.length > 0
  )
    return {
      mode: allowed.mode,
      names: allowed.tools.map((each, i) => check(each?.function?.name, `.allowed_tools.tools[${i}].function.name`)),
    };
  const forms =
    '"auto", "none", "required", { type: \'function\', function: { name } } or { type: \'allowed_tools\', allowed_tools: { mode, tools } }';
  throw wrongChoice('', `must be ${forms}, got ${shown(choice)}`);
}

/** @param {unknown} tool @param {string} at */
function checkTool(tool, at) {
  if (!isObject(tool) || tool.type !== 'function' || !isObject(tool.function)) {
    throw wrong(at, `${at} must be { type: 'function', function }, got ${shown(isObject(tool) ? tool.type : tool)}`);
  }
  const { name, parameters = {} } = tool.function;
  if (typeof name !== 'string' || name === '') {
    throw wrong(`${at}.function.name`, `${at}.function.name must be a text, got ${shown(name)}`);
  }
  if (!isObject(parameters)) {
    throw wrong(`${at}.function.parameters`, `${at}.function.parameters must be a JSON schema, got ${shown(parameters)}`);
  }
}

/**
 * The calls of an earlier answer, as templates expect them: their arguments are objects.
 * @param {unknown} calls @param {string} at
 */
export function earlierCalls(calls, at) {
  if (!Array.isArray(calls)) throw wrong(at, `${at} must be a list of calls, got ${shown(calls)}`);
  return calls.map((call, i) => {
    const { name, arguments: text } = isObject(call?.function) ? call.function : {};
    if (typeof name !== 'string') {
      throw wrong(`${at}[${i}].function.name`, `${at}[${i}].function.name must be a text, got ${shown(name)}`);
    }
    let given;
    try {
      // Of a function without parameters some models write nothing, which clients send again.
      given = text === '' ? {} : JSON.parse(/** @type {string} */ (text));
    } catch {
      // Not an object either.
    }
    const param = `${at}[${i}].function.arguments`;
    if (typeof text !== 'string' || !isObject(given))
      throw wrong(param, `${param} must be an object of JSON as a text, got ${shown(text)}`);
    return { ...call, function: { ...call.function, arguments: given } };
  });
}

const CHARACTERS = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';
/** An id of a call. Mistral's templates take nine of these characters and nothing else. */
const newId = () => Array.from({ length: 9 }, () => CHARACTERS[randomInt(CHARACTERS.length)]).join('');

/** The calls that a text has between its marks; undefined where it is something else. @param {string} text @returns {ToolCall[] | undefined} */
function callsOf(text) {
  // Before [ARGS] a name may be any text.
  const [, marked, plain, json] = /^\s*(?:([^{]+?)\[ARGS\]|([\w.-]+))\s*(\{[^]*)$/.exec(text) ?? [];
  let value;
  try {
    value = json === undefined ? JSON.parse(text) : { name: marked ?? plain, arguments: JSON.parse(json) };
  } catch {
    return undefined;
  }
  const calls = [];
  for (const each of [value].flat()) {
    const { name, arguments: given = each?.parameters } = isObject(each) ? each : {};
    if (typeof name !== 'string' || name === '' || !isObject(given)) return undefined;
    calls.push({ id: newId(), type: /** @type {const} */ ('function'), function: { name, arguments: JSON.stringify(given) } });
  }
  return calls.length > 0 ? calls : undefined;
}

/** Finds the calls in an answer that comes part by part. What is no call after all is text. */
export class CallFinder {
  #form;
  #several;
  #stops;
  /** What has come of a call, and the mark before it. @type {{ mark: string, text: string } | undefined} */
  #call;
  /** White space with which the answer, or the text after a call, begins. @type {string | undefined} */
  #lead = '';
  #count = 0;

  /** @param {CallForm} form @param {boolean} several whether the answer may have more than one call */
  constructor(form, several) {
    this.#form = form;
    this.#several = several;
    this.#stops = new StopFinder([form.begin]);
  }

  /** Whether the answer has calls. */
  get found() {
    return this.#count > 0;
  }

  /**
   * The part without what belongs to calls, and the calls that it completes.
   * @param {Part} part of the answer, in order
   * @returns {Part & { calls: ToolCall[] }}
   */
  push(part) {
    const own = { ...part, text: '', calls: /** @type {ToolCall[]} */ ([]) };
    this.#take(part.text, own);
    if (part.finishReason !== null) this.#end(own);
    return own;
  }

  /** @param {string} text @param {Part & { calls: ToolCall[] }} own */
  #take(text, own) {
    let rest = text;
    while (rest !== '') {
      rest = this.#call ? this.#continue(this.#call, rest, own) : this.#begin(rest, own);
    }
  }

  /** Text, up to a call. @param {string} text @param {Part & { calls: ToolCall[] }} own @returns {string} what follows the mark of a call */
  #begin(text, own) {
    const { begin, bare } = this.#form;
    const next = this.#stops.push(text);
    if (bare && this.#count === 0 && this.#lead !== undefined && next.text.trimStart().startsWith('{')) {
      this.#call = { mark: '', text: '' };
      return next.text + (next.found ? begin + next.rest : this.#stops.end());
    }
    this.#print(next.text, own);
    if (next.found) this.#call = { mark: begin, text: '' };
    return next.rest;
  }

  /** White space is printed with the text after it, and behind a call not at all: calls have some around them. @param {string} text @param {Part} own */
  #print(text, own) {
    if (this.#lead === undefined) own.text += text;
    else if (text.trim() === '') this.#lead += text;
    else {
      own.text += this.#count > 0 ? text.trimStart() : this.#lead + text;
      this.#lead = undefined;
    }
  }

  /** @param {{ mark: string, text: string }} call @param {string} text @param {Part & { calls: ToolCall[] }} own @returns {string} what follows the call */
  #continue(call, text, own) {
    const { begin, end } = this.#form;
    const seen = call.text.length;
    call.text += text;
    if (end === undefined) return '';
    // An argument may have the mark in it: then what is before it is no call.
    for (let at = call.text.indexOf(end, seen - end.length + 1); at >= 0; at = call.text.indexOf(end, at + 1)) {
      if (!this.#keep({ ...call, text: call.text.slice(0, at) }, own)) continue;
      this.#call = undefined;
      return call.text.slice(end === begin ? at : at + end.length);
    }
    return '';
  }

  /**
   * Adds calls to the answer: what follows a mark, or else what follows the last mark in that, as an answer may speak of the mark first.
   * @param {{ mark: string, text: string }} call @param {Part & { calls: ToolCall[] }} own @returns {boolean} whether there are any
   */
  #keep({ mark, text }, own) {
    const { begin } = this.#form;
    let calls = callsOf(text);
    const last = calls ? -1 : text.lastIndexOf(begin);
    if (last >= 0) calls = callsOf(text.slice(last + begin.length));
    if (!calls) return false;
    if (last >= 0) this.#print(mark + text.slice(0, last), own);
    own.calls.push(...(this.#several ? calls : calls.slice(0, this.#count > 0 ? 0 : 1)));
    this.#count += calls.length;
    this.#lead = '';
    return true;
  }

  /** @param {Part & { calls: ToolCall[] }} own */
  #end(own) {
    const rest = this.#call;
    this.#call = undefined;
    if (!rest) this.#print(this.#stops.end(), own);
    else if (!this.#keep(rest, own)) this.#print(rest.mark + rest.text, own);
    // An answer of white space alone.
    if (this.#lead && this.#count === 0) own.text += this.#lead;
  }
}
