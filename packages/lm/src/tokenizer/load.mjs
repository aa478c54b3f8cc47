/**
 * Loads a tokenizer from the files of a Hugging Face folder, or from a GGUF file. This package implements byte-level BPE;
 * `@huggingface/tokenizers` implements all other kinds.
 */

import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { Tokenizer as Library } from '@huggingface/tokenizers';
import { tokenizerJson } from '../formats/gguf-tokenizer.mjs';
import { isGguf, readGguf } from '../formats/gguf.mjs';
import { readJson } from '../json.mjs';
import { BYTE_SYMBOLS, pushId, wordEncoder, writeToken } from './bpe.mjs';
import { GPT2_PATTERN, MODERN_PATTERNS, addedTokenSplitter, bpeModel, byteLevel, normalizerOf, preTokenizerOf } from './split.mjs';
import { byteStrings, grown } from './strings.mjs';

/** @typedef {import('../json.mjs').Json} Json */

/**
 * @typedef {import('./split.mjs').AddedToken} AddedToken
 * @typedef {{ kind: 'byte' } | { kind: 'bpe', merges: [string, string][] }} TokenizerState in older checkpoints of this project
 *
 * @typedef {object} Tokenizer
 * @property {(text: string | Uint8Array, options?: { addSpecial?: boolean }) => Uint32Array} encode encodes a text. Bytes are read as UTF-8;
 *   invalid UTF-8 and lone surrogates become U+FFFD. Special tokens that are written in the text get their ids. With `addSpecial` (the
 *   default), the post-processor's tokens surround the text. Truncation and padding of the file are not applied
 * @property {(ids: ArrayLike<number>, options?: { skipSpecial?: boolean }) => string} decode decodes ids; invalid UTF-8 and, for byte-level BPE,
 *   ids outside of the vocabulary become U+FFFD. With `skipSpecial` (default false), special tokens are left out
 * @property {(options?: { skipSpecial?: boolean, except?: readonly number[] }) => { push: (id: number) => string, end: () => string }} decodeStream
 *   decodes ids one at a time: `push` returns the characters that are complete, `end` the rest. `except`: special tokens that are not left out
 * @property {(id: number) => Uint8Array | undefined} bytesOf what a token adds to the bytes of a text, within it; undefined for special tokens and
 *   ids that are no token
 * @property {number} vocabSize the largest id + 1
 * @property {Record<string, number | undefined>} special ids of special tokens, by their names in `tokenizer_config.json` without `_token`: bos,
 *   eos, pad, unk, …
 * @property {(token: string) => number | undefined} idOf the id of a token as the vocabulary writes it
 * @property {(id: number) => string | undefined} tokenOf the token of an id, as the vocabulary writes it
 * @property {Json} config `tokenizer_config.json`, completed by `special_tokens_map.json`
 * @property {Record<string, string>} chatTemplates templates by name; `default` is the one without a name
 * @property {() => Json} toJSON returns the contents of `tokenizer.json`
 * @property {Cut | undefined} cut where a long text can be cut so that its parts have the ids of the whole, one after the other: `before` a line
 *   feed that follows a character other than white space, or `after` a line feed that such a character follows; undefined if neither is known
 * @property {() => Record<string, string>} files returns file contents by name, to write into a folder that `loadTokenizer` and Hugging Face's
 *   libraries load
 *
 * @typedef {'before' | 'after'} Cut
 * @typedef {Pick<Tokenizer, 'encode' | 'decode' | 'decodeStream' | 'bytesOf'>} Codec
 */

/** What belongs to a tokenizer in a folder of Hugging Face's form, beside `tokenizer.json`. */
export const TOKENIZER_FILES = ['tokenizer_config.json', 'special_tokens_map.json', 'chat_template.jinja', 'additional_chat_templates'];

/** The types that `@huggingface/tokenizers` 0.2 supports, by key of `tokenizer.json`. */
const KNOWN = /** @type {Record<string, string[]>} */ ({
  model: ['BPE', 'Unigram', 'WordPiece'],
  normalizer: 'BertNormalizer Lowercase NFC NFD NFKC NFKD Precompiled Prepend Replace Sequence Strip StripAccents'.split(' '),
  pre_tokenizer:
    'BertPreTokenizer ByteLevel Digits FixedLength Metaspace Punctuation Replace Sequence Split Whitespace WhitespaceSplit'.split(' '),
  post_processor: 'BertProcessing ByteLevel RobertaProcessing Sequence TemplateProcessing'.split(' '),
  decoder: 'BPEDecoder ByteFallback ByteLevel CTC Fuse Metaspace Replace Sequence Strip WordPiece'.split(' '),
});

/** A UTF-8 decoder that keeps a leading U+FEFF: without `ignoreBOM` it would drop it. */
const utf8 = () => new TextDecoder('utf-8', { ignoreBOM: true });

const encoder = new TextEncoder();

/** Replaces lone surrogates and invalid UTF-8 by U+FFFD. @param {string | Uint8Array} text bytes are read as UTF-8 @returns {string} */
export const wellFormed = (text) => (typeof text === 'string' ? /** @type {Json} */ (text).toWellFormed() : utf8().decode(text));

/** The error for a value that cannot be read. @param {string} file @param {string} key @param {Json} found @param {string} expected */
const unreadable = (file, key, found, expected) =>
  new TypeError(`${file}: ${key} is ${JSON.stringify(found)?.slice(0, 200) ?? 'not there'}; ${expected}`);

/** A limit far above any vocabulary: a larger id is a fault of the file, and would make a huge table. */
const MAX_IDS = 2 ** 24;
const isId = (/** @type {Json} */ id) => Number.isSafeInteger(id) && id >= 0 && id < MAX_IDS;

/**
 * Makes `tokenizer.json` from the state in an older checkpoint: ids 0 to 255 are the bytes, then come the merges' tokens.
 * @param {Json} state @param {string} file
 */
function jsonOfState(state, file) {
  if (state.kind !== 'byte' && state.kind !== 'bpe') throw unreadable(file, 'kind', state.kind, 'known: "byte", "bpe"');
  const vocab = new Map(BYTE_SYMBOLS.map((symbol, byte) => [symbol, byte]));
  const merges = state.kind === 'bpe' ? state.merges : [];
  for (const [left, right] of merges) if (!vocab.has(left + right)) vocab.set(left + right, vocab.size);
  return byteLevelJson(vocab, merges, [], byteLevel(state.kind === 'bpe'));
}

/**
 * Makes the contents of a `tokenizer.json` of byte-level BPE.
 * @param {Map<string, number>} vocab @param {[string, string][]} merges @param {AddedToken[]} added @param {Json} preTokenizer
 */
export const byteLevelJson = (vocab, merges, added, preTokenizer) => ({
  version: '1.0',
  truncation: null,
  padding: null,
  added_tokens: added,
  normalizer: null,
  pre_tokenizer: preTokenizer,
  post_processor: null,
  decoder: byteLevel(),
  model: bpeModel({ vocab: Object.fromEntries(vocab), merges }),
});

/**
 * The ids that the post-processor puts before and after a text.
 * @param {Json} json `post_processor` of `tokenizer.json`
 * @returns {[number[], number[]] | undefined} undefined for one that this package does not implement
 */
function framesOf(json) {
  if (json === null || json === undefined || json.type === 'ByteLevel') return [[], []];
  if (json.type === 'BertProcessing' || json.type === 'RobertaProcessing') return [[json.cls[1]], [json.sep[1]]];
  if (json.type === 'Sequence') {
    const all = json.processors.map(framesOf);
    if (all.includes(undefined)) return undefined;
    return [[...all].reverse().flatMap(([before]) => before), all.flatMap((/** @type {Json} */ [, after]) => after)];
  }
  if (json.type !== 'TemplateProcessing') return undefined;
  const at = json.single.findIndex((/** @type {Json} */ part) => part.Sequence !== undefined);
  const ids = (/** @type {Json[]} */ parts) => parts.flatMap((part) => json.special_tokens[part.SpecialToken?.id]?.ids ?? [undefined]);
  const frames = /** @type {[number[], number[]]} */ ([ids(json.single.slice(0, at)), ids(json.single.slice(at + 1))]);
  return at < 0 || frames.flat().includes(/** @type {Json} */ (undefined)) ? undefined : frames;
}

/**
 * The merges of a model as ids: left, right and merged of each, in order.
 * @param {Json} model @param {string} file for messages @param {Map<string, number>} vocab
 */
function mergesOf(model, file, vocab) {
  const merges = new Int32Array(3 * model.merges.length);
  for (let i = 0; i < model.merges.length; i++) {
    const merge = model.merges[i];
    const pair = typeof merge === 'string' ? merge.split(' ') : merge;
    const isPair = Array.isArray(pair) && pair.length === 2;
    const left = isPair ? vocab.get(pair[0]) : undefined;
    const right = isPair ? vocab.get(pair[1]) : undefined;
    const merged = isPair ? vocab.get(pair[0] + pair[1]) : undefined;
    if (left === undefined || right === undefined || merged === undefined) {
      throw unreadable(file, `model.merges[${i}]`, merge, 'expected two tokens of model.vocab whose union is one too');
    }
    merges[3 * i] = left;
    merges[3 * i + 1] = right;
    merges[3 * i + 2] = merged;
  }
  return merges;
}

/**
 * The codec of byte-level BPE.
 * @param {Json} json `tokenizer.json` @param {string} file for messages
 * @param {Map<string, number>} vocab of the model @param {AddedToken[]} added @param {(string | undefined)[]} tokens by id
 * @returns {Codec | undefined} undefined if the file uses something that this package does not implement
 */
function byteLevelCodec(json, file, vocab, added, tokens) {
  const { model } = json;
  const normalize = normalizerOf(json.normalizer);
  const frames = framesOf(json.post_processor);
  const plain = (model.type ?? 'BPE') === 'BPE' && !model.dropout && !model.continuing_subword_prefix && !model.end_of_word_suffix;
  if (!plain || !normalize || !frames || json.decoder?.type !== 'ByteLevel' || !Array.isArray(model.merges)) return undefined;
  const preTokenizer = preTokenizerOf(json.pre_tokenizer);
  const byteIds = Int32Array.from(BYTE_SYMBOLS, (symbol) => vocab.get(symbol) ?? -1);
  if (!preTokenizer || (model.byte_fallback && byteIds.includes(-1))) return undefined;

  const merges = mergesOf(model, file, vocab);
  const addedIds = new Set(added.map(({ id }) => id));
  // The bytes of all tokens end to end: one object per token would take ten times the memory.
  const starts = new Uint32Array(tokens.length + 1);
  let bytes = new Uint8Array(8 * tokens.length);
  const words = byteStrings();
  const wordIds = new Int32Array(model.ignore_merges ? tokens.length : 0);
  for (let id = 0; id < tokens.length; id++) {
    const token = tokens[id] ?? '';
    let at = starts[id];
    // A character has at most three bytes of UTF-8 per UTF-16 unit.
    if (at + 3 * token.length > bytes.length) bytes = grown(bytes, at + 3 * token.length);
    if (!addedIds.has(id) && writeToken(token, bytes, at)) {
      at += token.length;
      if (model.ignore_merges) wordIds[words.intern(bytes, starts[id], at)] = id;
    } else at += encoder.encodeInto(token, bytes.subarray(at)).written;
    starts[id + 1] = at;
  }
  const wholeWord = (/** @type {Uint8Array} */ text, /** @type {number} */ start, /** @type {number} */ end) => {
    const word = words.find(text, start, end);
    return word < 0 ? -1 : wordIds[word];
  };
  const encodeWord = wordEncoder({
    byteIds,
    unknown: vocab.get(model.unk_token),
    fuseUnknown: model.fuse_unk === true,
    merges,
    wholeWord: model.ignore_merges ? wholeWord : undefined,
  });
  const splitRaw = addedTokenSplitter(added.filter(({ normalized }) => !normalized));
  const normalized = added.filter(({ normalized }) => normalized).map((token) => ({ ...token, content: normalize(token.content) }));
  const splitNormalized = addedTokenSplitter(normalized);
  const { prefixSpace, split } = preTokenizer;
  const special = new Set(added.filter(({ special }) => special).map(({ id }) => id));
  const replacement = Buffer.from('\ufffd');
  const bytesOf = (/** @type {number} */ id) => (tokens[id] === undefined ? replacement : bytes.subarray(starts[id], starts[id + 1]));

  return {
    encode(text, { addSpecial = true } = {}) {
      // Room for a token of three characters, about as many as there are.
      const out = { ids: new Uint32Array(64 + text.length / 3), length: 0 };
      const push = (/** @type {number} */ id) => pushId(out, id);
      const whole = wellFormed(text);
      if (addSpecial) frames[0].forEach(push);
      const encodePiece = (/** @type {string} */ piece) => {
        const encoded = Buffer.from(prefixSpace && piece[0] !== ' ' ? ` ${piece}` : piece);
        split(encoded, (start, end) => encodeWord(encoded, start, end, out));
      };
      splitRaw(whole, (raw) => splitNormalized(normalize(raw), encodePiece, push), push);
      if (addSpecial) frames[1].forEach(push);
      return out.ids.slice(0, out.length);
    },
    decode(ids, { skipSpecial = false } = {}) {
      const kept = skipSpecial ? Array.from(ids).filter((id) => !special.has(id)) : Array.from(ids);
      return utf8().decode(Buffer.concat(kept.map(bytesOf)));
    },
    decodeStream({ skipSpecial = false, except = [] } = {}) {
      const decoder = utf8();
      return {
        push: (id) => (skipSpecial && special.has(id) && !except.includes(id) ? '' : decoder.decode(bytesOf(id), { stream: true })),
        end: () => decoder.decode(),
      };
    },
    bytesOf: (id) => (special.has(id) || tokens[id] === undefined ? undefined : bytesOf(id)),
  };
}

/**
 * The codec of `@huggingface/tokenizers`, for all other kinds.
 * @param {Json} json @param {string} file @param {Json} config @param {(string | undefined)[]} tokens by id @returns {Codec}
 */
function libraryCodec(json, file, config, tokens) {
  /** @param {string} key @param {Json} part @param {string} at */
  const check = (key, part, at) => {
    if (part === null || part === undefined) return;
    if (!KNOWN[key].includes(part.type)) throw unreadable(file, `${at}.type`, part.type, `known: ${KNOWN[key].join(', ')}`);
    const lists = ['normalizers', 'pretokenizers', 'processors', 'decoders'].filter((list) => Array.isArray(part[list]));
    for (const list of lists)
      part[list].forEach((/** @type {Json} */ each, /** @type {number} */ i) => check(key, each, `${at}.${list}[${i}]`));
  };
  for (const key of Object.keys(KNOWN)) check(key, key === 'model' ? { type: 'BPE', ...json.model } : json[key], key);
  const defaults = { added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };
  /** @type {Library} */
  let library;
  try {
    library = new Library({ ...defaults, ...json }, config);
  } catch (cause) {
    throw new TypeError(`${file}: @huggingface/tokenizers does not read it: ${/** @type {Error} */ (cause).message}`, { cause });
  }
  const special = new Set(
    json.added_tokens.filter((/** @type {AddedToken} */ each) => each.special).map((/** @type {AddedToken} */ { id }) => id),
  );
  /** @param {ArrayLike<number>} ids @param {{ skipSpecial?: boolean, except?: readonly number[] }} [options] */
  const decode = (ids, { skipSpecial = false, except = [] } = {}) => {
    const kept = skipSpecial ? Array.from(ids).filter((id) => !special.has(id) || except.includes(id)) : Array.from(ids);
    // The library takes a space of some decoders away where it leaves special tokens out.
    const skip = skipSpecial && except.length === 0;
    return kept.length === 0 ? '' : library.decode(kept, { skip_special_tokens: skip, clean_up_tokenization_spaces: false });
  };
  return {
    encode(text, { addSpecial = true } = {}) {
      const whole = wellFormed(text);
      return Uint32Array.from(library.encode(whole, { add_special_tokens: addSpecial }).ids);
    },
    decode,
    // Some decoders treat the first token differently, so tokens cannot be decoded one by one: emit what each token adds to the text of the
    // tokens before it.
    decodeStream(options) {
      /** @type {number[]} */
      let ids = [];
      let [given, before] = ['', 0];
      return {
        push(id) {
          ids.push(id);
          const text = decode(ids, options);
          if (text.length <= given.length || text.endsWith('\ufffd')) return '';
          const added = text.slice(given.length);
          ids = ids.slice(before);
          [given, before] = [decode(ids, options), ids.length];
          return added;
        },
        end: () => decode(ids, options).slice(given.length),
      };
    },
    bytesOf(id) {
      if (tokens[id] === undefined || special.has(id)) return undefined;
      const [, byte] = /^<0x([0-9A-F]{2})>$/.exec(/** @type {string} */ (tokens[id])) ?? [];
      if (byte !== undefined) return Uint8Array.of(Number.parseInt(byte, 16));
      // Some decoders treat the first token differently, so it is decoded behind itself.
      return encoder.encode(decode([id, id]).slice(decode([id]).length));
    },
  };
}

/** The chat templates of a folder, by name. @param {Json} config @param {string | undefined} folder @param {string} file */
function templatesOf(config, folder, file) {
  /** @type {Record<string, string>} */
  const templates = {};
  const said = config.chat_template ?? [];
  for (const { name, template } of Array.isArray(said) ? said : [{ name: 'default', template: said }]) {
    if (typeof template !== 'string') throw unreadable(file, 'chat_template', said, 'expected a string or a list of { name, template }');
    templates[name] = template;
  }
  if (folder === undefined) return templates;
  const more = join(folder, 'additional_chat_templates');
  if (existsSync(more)) {
    for (const name of readdirSync(more).filter((entry) => entry.endsWith('.jinja'))) {
      templates[basename(name, '.jinja')] = readFileSync(join(more, name), 'utf8');
    }
  }
  if (existsSync(join(folder, 'chat_template.jinja'))) templates.default = readFileSync(join(folder, 'chat_template.jinja'), 'utf8');
  return templates;
}

/**
 * See `Tokenizer.cut`. GPT-2's words never join white space with a character before it, but "\n\n" is one token before another space or the end of
 * the text, and two tokens before a letter. In the modern patterns, a line feed belongs to the punctuation before it, and the last line feed of
 * white space ends a token.
 * @param {Json} json `tokenizer.json` @returns {Cut | undefined}
 */
function cutOf({ model, normalizer, pre_tokenizer: preTokenizer, added_tokens: added }) {
  const parts = preTokenizer?.type === 'Sequence' ? preTokenizer.pretokenizers : [preTokenizer];
  const last = parts.at(-1);
  if (last?.type !== 'ByteLevel' || last.add_prefix_space || (normalizer && !/^NFK?[CD]$/.test(normalizer.type))) return undefined;
  /** @type {Set<string | undefined>} */
  const cuts = new Set(last.use_regex === false ? [] : ['before']);
  const modern = Object.values(MODERN_PATTERNS);
  for (const part of parts.slice(0, -1)) {
    if (part.type === 'Digits') continue;
    if (part.type !== 'Split') return undefined;
    const regex = part.pattern.Regex;
    cuts.add(regex === GPT2_PATTERN ? 'before' : modern.includes(regex) ? 'after' : undefined);
  }
  // Without merges, bytes are ids of their own.
  if (cuts.size === 0 && model.merges?.length === 0) cuts.add('before');
  const [cut] = cuts;
  if (cuts.size !== 1) return undefined;
  // An added token may take the white space beside it.
  const reaches = (/** @type {AddedToken} */ { content, lstrip, rstrip }) =>
    cut === 'before' ? rstrip || /\P{White_Space}\n/u.test(content) : lstrip || /\n\P{White_Space}/u.test(content);
  return added.some(reaches) ? undefined : /** @type {Cut | undefined} */ (cut);
}

/** The special tokens that `tokenizer_config.json` names, by its keys, such as `eos_token`. @param {Json} config @returns {Record<string, string>} */
export function specialTokens(config) {
  const contents = Object.entries(config).map(([key, value]) => [key, value?.content ?? value]);
  return Object.fromEntries(contents.filter(([key, content]) => key.endsWith('_token') && typeof content === 'string'));
}

/** The tokenizer of a folder, if it has one. @param {string} folder */
export const tokenizerIn = (folder) => (existsSync(join(folder, 'tokenizer.json')) ? loadTokenizer(folder) : undefined);

/**
 * Loads a tokenizer.
 * @param {string | object} source a folder with `tokenizer.json`; the path of such a file; its parsed contents; the path of a GGUF file, or what
 *   `readGguf` returned for it; or the state in an older checkpoint of this project. For the path of a `tokenizer.json`,
 *   `tokenizer_config.json`, `special_tokens_map.json`, `chat_template.jinja` and `additional_chat_templates/` beside it are read too
 * @param {{ config?: Record<string, Json> }} [options] `config`: the contents of `tokenizer_config.json`; for a path, its keys replace those of the file
 * @returns {Tokenizer}
 * @throws {TypeError} that names the file, the key and its value, for something that is not supported; {Error} for a file that is missing or
 *   not JSON
 */
export function loadTokenizer(source, options = {}) {
  /** @type {string | undefined} */
  let folder;
  let [file, configFile] = ['tokenizer.json', 'tokenizer_config.json'];
  /** @type {Json} */
  let json = source;
  /** @type {Record<string, Json>} */
  let config = { ...options.config };
  const gguf = isGguf(source)
    ? readGguf(source)
    : /** @type {Json} */ (source)?.metadata instanceof Map
      ? /** @type {Json} */ (source)
      : undefined;
  if (gguf) {
    const found = tokenizerJson(gguf);
    file = configFile = gguf.path;
    json = found.json;
    config = { ...found.config, ...config };
  } else if (typeof source === 'string') {
    file = statSync(source, { throwIfNoEntry: false })?.isDirectory() ? join(source, 'tokenizer.json') : source;
    if (!existsSync(file)) throw new Error(`${file} does not exist; a tokenizer is a folder with tokenizer.json, or that file`);
    folder = dirname(file);
    configFile = join(folder, 'tokenizer_config.json');
    json = readJson(file);
    const map = join(folder, 'special_tokens_map.json');
    config = { ...(existsSync(map) ? readJson(map) : {}), ...(existsSync(configFile) ? readJson(configFile) : {}), ...config };
  }
  if (json?.kind !== undefined) json = jsonOfState(json, file);
  if (typeof json?.model?.vocab !== 'object')
    throw unreadable(file, 'model.vocab', json?.model?.vocab, 'expected an object of tokens and ids');

  /** @type {Map<string, number>} */
  const vocab = new Map();
  /** @type {(string | undefined)[]} */
  const tokens = [];
  const addToken = (/** @type {string} */ token, /** @type {Json} */ id) => {
    if (!isId(id)) throw unreadable(file, `model.vocab[${JSON.stringify(token)}]`, id, 'expected an id');
    vocab.set(token, id);
    tokens[id] = token;
  };
  // `Object.entries` of so many keys takes twice the time.
  if (Array.isArray(json.model.vocab))
    json.model.vocab.forEach((/** @type {[string, number]} */ [token], /** @type {number} */ id) => addToken(token, id));
  else for (const token of Object.keys(json.model.vocab)) addToken(token, json.model.vocab[token]);
  // As in transformers, tokens that only `tokenizer_config.json` lists are added too.
  const listed = new Set((json.added_tokens ?? []).map((/** @type {AddedToken} */ { content }) => content));
  const configured = Object.entries(config.added_tokens_decoder ?? {}).map(([id, token]) => ({ ...token, id: Number(id) }));
  /** @type {AddedToken[]} */
  const added = [...(json.added_tokens ?? []), ...configured.filter(({ content }) => !listed.has(content))];
  json = { ...json, added_tokens: added };

  /** Ids of added tokens, which may be in the vocabulary too. @type {Map<string, number>} */
  const addedIds = new Map();
  const idOf = (/** @type {string} */ token) => addedIds.get(token) ?? vocab.get(token);
  added.forEach(({ id, content }, i) => {
    const taken = idOf(content) ?? id;
    if (!isId(id) || taken !== id || (tokens[id] ?? content) !== content) {
      throw unreadable(file, `added_tokens[${i}]`, { id, content }, `expected an id that no other token has, and the token's one id`);
    }
    addedIds.set(content, id);
    tokens[id] = content;
  });
  for (let id = 0; id < tokens.length; id++) tokens[id] ??= undefined;

  const codec = byteLevelCodec(json, file, vocab, added, tokens) ?? libraryCodec(json, file, config, tokens);
  /** @type {Record<string, number | undefined>} */
  const special = { unk: idOf(json.model.unk_token) };
  for (const [key, token] of Object.entries(specialTokens(config))) special[key.slice(0, -6)] = idOf(token);
  const chatTemplates = templatesOf(config, folder, configFile);
  return {
    ...codec,
    vocabSize: tokens.length,
    special,
    idOf,
    tokenOf: (id) => tokens[id],
    config,
    chatTemplates,
    toJSON: () => json,
    cut: cutOf(json),
    files: () => {
      const { chat_template: _, ...rest } = config;
      const { default: template, ...named } = chatTemplates;
      return {
        'tokenizer.json': `${JSON.stringify(json, null, 2)}\n`,
        'tokenizer_config.json': `${JSON.stringify({ tokenizer_class: 'PreTrainedTokenizerFast', ...rest }, null, 2)}\n`,
        ...(template === undefined ? {} : { 'chat_template.jinja': template }),
        ...Object.fromEntries(Object.entries(named).map(([name, text]) => [`additional_chat_templates/${name}.jinja`, text])),
      };
    },
  };
}
