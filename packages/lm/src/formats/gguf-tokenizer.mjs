// Tokenizers and chat templates in GGUF: `tokenizer.*` keys to the contents of `tokenizer.json` and `tokenizer_config.json`, and back.

import { GPT2_PATTERN, MODERN_PATTERNS, bpeModel, byteLevel, splitBy } from '../tokenizer/split.mjs';

/**
 * @typedef {import('../json.mjs').Json} Json
 * @typedef {import('./gguf.mjs').Gguf} Gguf
 * @typedef {import('./gguf.mjs').Metadata} Metadata
 * @typedef {import('../tokenizer/load.mjs').Tokenizer} Tokenizer
 * @typedef {import('../config.mjs').ModelConfig} ModelConfig
 *
 * Elements of the arrays of a tokenizer, by the types of their keys.
 * @typedef {{ 'string[]': string, 'i32[]': number, 'f32[]': number }} Elements
 */

/** Types of tokens: `llama_token_type`. */
const TYPE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 };

/** Mistral's words: of one case, but for a capital at the beginning. */
const TEKKEN =
  '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|' +
  '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|' +
  '\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';

/**
 * Pre-tokenizers of byte-level BPE by llama.cpp's names (`tokenizer.ggml.pre`), the first of several that are the same: the patterns that
 * split a text one after the other, the normalizer of the models that have it (llama.cpp applies none), and whether a word that is a token
 * is that token, whatever the merges say.
 * @type {{ names: string[], patterns: string[], normalizer?: string, ignoreMerges?: boolean }[]}
 */
const PRE_TOKENIZERS = [
  { names: ['gpt-2', 'phi-2'], patterns: [GPT2_PATTERN] },
  { names: ['llama-bpe', 'llama3', 'llama-v3'], patterns: [MODERN_PATTERNS.llama3], ignoreMerges: true },
  { names: ['dbrx', 'smaug-bpe'], patterns: [MODERN_PATTERNS.llama3] },
  { names: ['qwen2'], patterns: [MODERN_PATTERNS.qwen2], normalizer: 'NFC' },
  { names: ['smollm'], patterns: ['\\p{N}', GPT2_PATTERN] },
  { names: ['tekken'], patterns: [TEKKEN], ignoreMerges: true },
];
const PRE_NAMES = PRE_TOKENIZERS.flatMap(({ names }) => names);

/** What GGUF has no key for: the sections of `tokenizer.json` that differ from what its keys give, as JSON. llama.cpp ignores it. */
const REST = 'helios.tokenizer';
const SECTIONS = ['added_tokens', 'normalizer', 'pre_tokenizer', 'post_processor', 'decoder'];

const SPACE = '\u2581';
const byteToken = (/** @type {number} */ byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;
const BYTE_TOKEN = /^<0x[0-9A-F]{2}>$/;
/** The text of an id that no token has. @param {number} id */
const unusedToken = (id) => `[PAD${id}]`;

/** @param {Json} preTokenizer @returns {string[] | undefined} its patterns, undefined if it has other parts */
function patternsOf(preTokenizer) {
  const parts = preTokenizer?.type === 'Sequence' ? preTokenizer.pretokenizers : [preTokenizer];
  if (parts.at(-1)?.type !== 'ByteLevel' || parts.at(-1).add_prefix_space) return undefined;
  const patterns = parts.flatMap((/** @type {Json} */ { type, use_regex, individual_digits, pattern, behavior, invert }) => {
    if (type === 'ByteLevel') return use_regex === false ? [] : [GPT2_PATTERN];
    if (type === 'Digits') return [individual_digits ? '\\p{N}' : '\\p{N}+'];
    // "Removed" and inverted keeps the matches alone, which these patterns leave nothing between.
    return type === 'Split' && (behavior === 'Isolated' || (behavior === 'Removed' && invert)) ? [pattern?.Regex] : [undefined];
  });
  return patterns.includes(undefined) ? undefined : patterns;
}

/** llama.cpp's name of a pre-tokenizer. @param {Json} json `tokenizer.json` @returns {string} @throws {Error} for an unknown one */
function preNameOf({ model, normalizer, pre_tokenizer: preTokenizer }) {
  // Without merges, bytes are ids of their own, wherever words end.
  const patterns = model.merges.length === 0 ? [GPT2_PATTERN] : patternsOf(preTokenizer);
  const known = PRE_TOKENIZERS.find(
    (each) => String(each.patterns) === String(patterns) && (each.ignoreMerges ?? false) === (model.ignore_merges ?? false),
  );
  if (!known || (normalizer && normalizer.type !== 'NFC')) {
    const found = JSON.stringify({
      normalizer: normalizer?.type ?? null,
      ignore_merges: model.ignore_merges ?? false,
      pre_tokenizer: preTokenizer,
    });
    throw new Error(
      `the tokenizer cannot be exported as GGUF: llama.cpp would split texts in another way than ${found}; ` +
        `known: those of ${PRE_TOKENIZERS.map(({ names }) => names[0]).join(', ')}`,
    );
  }
  return known.names[0];
}

/** The tokens that encoding puts before and after a text. @param {Tokenizer} tokenizer */
function framesOf(tokenizer) {
  const [whole, inner] = [true, false].map((addSpecial) => [...tokenizer.encode('a', { addSpecial })]);
  const at = whole.findIndex((_, i) => inner.every((id, j) => whole[i + j] === id));
  return [whole.slice(0, at), whole.slice(at + inner.length)];
}

/**
 * The keys of a tokenizer and its chat templates.
 * @param {Tokenizer | undefined} tokenizer without one, the file says so and only ids go in @param {ModelConfig} config
 * @returns {Metadata}
 * @throws {Error} for a tokenizer that llama.cpp does not have
 */
export function tokenizerMetadata(tokenizer, config) {
  /** @type {Metadata} */
  const metadata = new Map();
  const setId = (/** @type {string} */ name, /** @type {number | null | undefined} */ id) =>
    id === null || id === undefined || metadata.set(`tokenizer.ggml.${name}_token_id`, { type: 'u32', value: id });
  const own = tokenizer?.special.eos;
  const ends = [...config.eos, ...(own !== undefined && config.eos.length === 0 ? [own] : [])];
  // The tokenizer's own end comes first.
  ends.sort((a, b) => Number(b === own) - Number(a === own));
  if (ends.length > 3) throw new Error(`the model has ${ends.length} ids that end a text (${ends.join(', ')}); GGUF has keys for three`);
  const bos = tokenizer?.special.bos ?? config.bos;
  setId('bos', bos);
  ['eos', 'eot', 'eom'].forEach((name, i) => setId(name, ends[i]));
  setId('padding', config.pad ?? tokenizer?.special.pad);
  if (!tokenizer) return metadata.set('tokenizer.ggml.model', { type: 'string', value: 'no_vocab' });

  const json = tokenizer.toJSON();
  const { model } = json;
  const [before, after] = framesOf(tokenizer);
  if (before.some((id) => id !== bos) || before.length > 1 || after.some((id) => id !== ends[0]) || after.length > 1) {
    throw new Error(
      `the tokenizer cannot be exported as GGUF: it puts ${[...before, '…', ...after].join(' ')} around a text; known: bos … eos`,
    );
  }
  if ((model.type ?? 'BPE') !== 'BPE' || model.dropout || model.continuing_subword_prefix || model.end_of_word_suffix) {
    throw new Error(
      `the tokenizer cannot be exported as GGUF: its model (${model.type ?? 'BPE'}) is neither plain byte-level BPE nor SentencePiece's BPE`,
    );
  }
  const { vocabSize } = config;
  if (tokenizer.vocabSize > vocabSize) throw new Error(`the tokenizer has ${tokenizer.vocabSize} ids, the model ${vocabSize}`);
  const pieces = model.byte_fallback === true && json.decoder?.type !== 'ByteLevel';
  const merges = model.merges.map((/** @type {Json} */ merge) => (typeof merge === 'string' ? merge.split(' ') : merge));
  metadata.set('tokenizer.ggml.model', { type: 'string', value: pieces ? 'llama' : 'gpt2' });
  metadata.set('tokenizer.ggml.pre', { type: 'string', value: pieces ? 'default' : preNameOf(json) });

  const added = new Map(json.added_tokens.map((/** @type {Json} */ token) => [token.id, token]));
  const tokens = Array.from({ length: vocabSize }, (_, id) => tokenizer.tokenOf(id));
  const types = tokens.map((token, id) => {
    if (token === undefined) return TYPE.unused;
    if (pieces && BYTE_TOKEN.test(token)) return TYPE.byte;
    if (pieces && token === model.unk_token) return TYPE.unknown;
    return added.has(id) ? (added.get(id).special ? TYPE.control : TYPE.userDefined) : TYPE.normal;
  });
  metadata.set('tokenizer.ggml.tokens', { type: 'string[]', value: tokens.map((token, id) => token ?? unusedToken(id)) });
  metadata.set('tokenizer.ggml.token_type', { type: 'i32[]', value: types });
  if (pieces) {
    metadata.set('tokenizer.ggml.scores', { type: 'f32[]', value: scoresOf(tokens, merges) });
    setId('unknown', tokenizer.special.unk);
    metadata.set('tokenizer.ggml.add_space_prefix', { type: 'bool', value: prefixesSpace(json) });
  } else {
    const spaced = merges.find((/** @type {string[]} */ pair) => pair.some((token) => token.includes(' ')));
    if (spaced) throw new Error(`the tokenizer cannot be exported as GGUF: a space is in the merge ${JSON.stringify(spaced)}`);
    metadata.set('tokenizer.ggml.merges', { type: 'string[]', value: merges.map((/** @type {string[]} */ pair) => pair.join(' ')) });
  }
  metadata.set('tokenizer.ggml.add_bos_token', { type: 'bool', value: before.length > 0 });
  metadata.set('tokenizer.ggml.add_eos_token', { type: 'bool', value: after.length > 0 });

  const { default: template, ...named } = tokenizer.chatTemplates;
  if (template !== undefined) metadata.set('tokenizer.chat_template', { type: 'string', value: template });
  for (const [name, text] of Object.entries(named)) metadata.set(`tokenizer.chat_template.${name}`, { type: 'string', value: text });

  const made = contentsOf(metadata, 'the file').json;
  if (pieces) checkMerges(made.model.merges, merges);
  const differs = SECTIONS.filter((key) => JSON.stringify(made[key]) !== JSON.stringify(json[key] ?? null));
  if (differs.length > 0) {
    const rest = Object.fromEntries(differs.map((key) => [key, json[key] ?? null]));
    metadata.set(REST, { type: 'string', value: JSON.stringify(rest) });
  }
  return metadata;
}

/** Whether SentencePiece's BPE puts a space before a text. @param {Json} json */
function prefixesSpace({ normalizer, pre_tokenizer: preTokenizer }) {
  const parts = normalizer?.type === 'Sequence' ? normalizer.normalizers : [normalizer];
  if (preTokenizer?.type === 'Metaspace') return (preTokenizer.prepend_scheme ?? 'always') !== 'never';
  return parts.some((/** @type {Json} */ part) => part?.type === 'Prepend' && part.prepend === SPACE);
}

/** Scores of SentencePiece: the earlier the merge that makes a token, the higher. @param {(string | undefined)[]} tokens @param {string[][]} merges */
function scoresOf(tokens, merges) {
  /** @type {Map<string, number>} */
  const ranks = new Map();
  for (const [left, right] of merges) if (!ranks.has(left + right)) ranks.set(left + right, ranks.size);
  return tokens.map((token) => -(ranks.get(token ?? '') ?? ranks.size));
}

/**
 * Merges of SentencePiece's BPE: every split of a token into two tokens, in the order of the scores.
 * @param {ArrayLike<string>} tokens @param {ArrayLike<number>} scores @param {(id: number) => boolean} isPiece
 */
function mergesOf(tokens, scores, isPiece) {
  const ids = new Map(Array.from(tokens, (token, id) => /** @type {const} */ ([token, id])).filter(([, id]) => isPiece(id)));
  /** @type {{ pair: [string, string], score: number, left: number, right: number }[]} */
  const all = [];
  for (const [token, id] of ids) {
    for (let cut = 1; cut < token.length; cut++) {
      const [left, right] = [ids.get(token.slice(0, cut)), ids.get(token.slice(cut))];
      if (left === undefined || right === undefined) continue;
      all.push({ pair: [token.slice(0, cut), token.slice(cut)], score: scores[id], left, right });
    }
  }
  return all.sort((a, b) => b.score - a.score || a.left - b.left || a.right - b.right).map(({ pair }) => pair);
}

/**
 * llama.cpp merges any two pieces whose union is a token: a tokenizer with fewer merges gives other ids there.
 * @param {string[][]} all @param {string[][]} own
 */
function checkMerges(all, own) {
  const listed = new Set(own.map((pair) => pair.join('\0')));
  const other = all.find((pair) => !listed.delete(pair.join('\0'))) ?? [...listed][0]?.split('\0');
  if (other) {
    throw new Error(
      `the tokenizer cannot be exported as GGUF: llama.cpp merges any two pieces whose union is a token, and this tokenizer differs at ${other.join(' + ')}`,
    );
  }
}

/** Whether a file has a tokenizer. @param {Gguf} gguf */
export function hasTokenizer({ metadata }) {
  const model = metadata.get('tokenizer.ggml.model')?.value;
  return model !== undefined && model !== 'no_vocab' && model !== 'none';
}

/**
 * The tokenizer of a file.
 * @param {Gguf} gguf
 * @returns {{ json: Json, config: Json }} the contents of `tokenizer.json` and `tokenizer_config.json`
 * @throws {Error} that names the file and the key, for a file without a tokenizer, and for one that is not known
 */
export function tokenizerJson(gguf) {
  if (!hasTokenizer(gguf)) throw new Error(`${gguf.path} has no tokenizer`);
  return contentsOf(gguf.metadata, gguf.path);
}

/** @param {Metadata} metadata @param {string} path for errors @returns {{ json: Json, config: Json }} */
function contentsOf(metadata, path) {
  const get = (/** @type {string} */ name) => metadata.get(name)?.value;
  const own = (/** @type {string} */ name) => get(`tokenizer.ggml.${name}`);
  const bad = (/** @type {string} */ key, /** @type {string} */ expected) => {
    const value = get(key);
    const shown = value === undefined ? 'missing' : typeof value === 'object' ? `a list of ${value.length}` : JSON.stringify(String(value));
    return new Error(`${path}: the key "${key}" is ${shown}, expected ${expected}`);
  };
  /** @template {keyof Elements} T @param {string} name @param {T} type @param {number} [length] @returns {ArrayLike<Elements[T]>} */
  const list = (name, type, length) => {
    const key = `tokenizer.ggml.${name}`;
    const found = metadata.get(key);
    if (found?.type !== type || (length !== undefined && /** @type {ArrayLike<unknown>} */ (found.value).length !== length)) {
      throw bad(key, `an array of ${type.slice(0, -2)}${length === undefined ? '' : ` with ${length} elements, one a token`}`);
    }
    return /** @type {ArrayLike<Elements[T]>} */ (found.value);
  };
  const kind = own('model');
  if (kind !== 'gpt2' && kind !== 'llama') throw bad('tokenizer.ggml.model', 'gpt2 (byte-level BPE) or llama (BPE of SentencePiece)');
  const tokens = list('tokens', 'string[]');
  const types = own('token_type') === undefined ? new Array(tokens.length).fill(TYPE.normal) : list('token_type', 'i32[]', tokens.length);
  const isThere = (/** @type {number} */ id) => types[id] !== TYPE.unused || tokens[id] !== unusedToken(id);
  const ids = Array.from({ length: tokens.length }, (_, id) => id).filter(isThere);
  const isSpecial = (/** @type {number} */ id) => types[id] === TYPE.control || (kind === 'llama' && types[id] === TYPE.unknown);
  /** @param {string} name @param {string} [key] @returns {string | undefined} the token */
  const token = (name, key = `tokenizer.ggml.${name}_token_id`) => {
    const id = get(key);
    if (id === undefined) return undefined;
    if (typeof id !== 'number' || tokens[id] === undefined) throw bad(key, `the id of one of ${tokens.length} tokens`);
    return tokens[id];
  };
  const [bos, eos, unk, pad] = ['bos', 'eos', 'unknown', 'padding'].map((name) => token(name));
  const vocab = Object.fromEntries(ids.map((id) => [tokens[id], id]));
  const plain = { single_word: false, lstrip: false, rstrip: false, normalized: false };
  const json = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: ids
      .filter((id) => isSpecial(id) || types[id] === TYPE.userDefined)
      .map((id) => ({ id, content: tokens[id], ...plain, special: isSpecial(id) })),
    post_processor: postProcessor(own('add_bos_token') ?? addsBos(), own('add_eos_token') === true),
    ...(kind === 'gpt2' ? ofBytes() : sentencePieces()),
  };
  const rest = get(REST);
  if (typeof rest === 'string') Object.assign(json, restOf(rest, path));
  const templates = [...metadata].flatMap(([key, { value }]) => {
    const name = key.match(/^tokenizer\.chat_template(?:\.(.+))?$/);
    return name && typeof value === 'string' ? [{ name: name[1] ?? 'default', template: value }] : [];
  });
  const config = {
    ...Object.fromEntries(
      Object.entries({ bos_token: bos, eos_token: eos, unk_token: unk, pad_token: pad }).filter(([, content]) => content !== undefined),
    ),
    ...(templates.length > 0 ? { chat_template: templates } : {}),
  };
  return { json, config };

  /** Whether llama.cpp puts bos before a text where the file does not say. */
  function addsBos() {
    if (kind === 'llama') return bos !== undefined;
    return bos !== undefined && PRE_TOKENIZERS.some(({ names, ignoreMerges }) => ignoreMerges && names.includes(String(own('pre'))));
  }

  /** The sections of byte-level BPE. */
  function ofBytes() {
    const pre = own('pre');
    const known = PRE_TOKENIZERS.find(({ names }) => names.includes(String(pre)));
    if (!known) throw bad('tokenizer.ggml.pre', `one of ${PRE_NAMES.join(', ')}`);
    return {
      normalizer: known.normalizer ? { type: known.normalizer } : null,
      pre_tokenizer: { type: 'Sequence', pretokenizers: [...known.patterns.map(splitBy), byteLevel()] },
      decoder: byteLevel(),
      model: bpeModel({ ignore_merges: known.ignoreMerges ?? false, vocab, merges: Array.from(list('merges', 'string[]')) }),
    };
  }

  /** The sections of SentencePiece's BPE, as transformers converts it. */
  function sentencePieces() {
    const scores = list('scores', 'f32[]', tokens.length);
    const isPiece = (/** @type {number} */ id) => types[id] === TYPE.normal || types[id] === TYPE.userDefined || types[id] === TYPE.unused;
    const replaced = { type: 'Replace', pattern: { String: ' ' }, content: SPACE };
    const prefixed = own('add_space_prefix') !== false;
    const restored = { type: 'Replace', pattern: { String: SPACE }, content: ' ' };
    const decoders = [
      restored,
      { type: 'ByteFallback' },
      { type: 'Fuse' },
      ...(prefixed ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
    ];
    for (let byte = 0; byte < 256; byte++) {
      if (vocab[byteToken(byte)] === undefined) throw bad('tokenizer.ggml.tokens', `a token ${byteToken(byte)} among them`);
    }
    return {
      normalizer: prefixed ? { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: SPACE }, replaced] } : replaced,
      pre_tokenizer: null,
      decoder: { type: 'Sequence', decoders },
      model: bpeModel({ unk_token: unk ?? null, fuse_unk: true, byte_fallback: true, vocab, merges: mergesOf(tokens, scores, isPiece) }),
    };
  }

  /** @param {unknown} first @param {boolean} last whether a text gets bos, eos */
  function postProcessor(first, last) {
    if (first && bos === undefined) throw bad('tokenizer.ggml.bos_token_id', 'an id, since "tokenizer.ggml.add_bos_token" is true');
    if (last && eos === undefined) throw bad('tokenizer.ggml.eos_token_id', 'an id, since "tokenizer.ggml.add_eos_token" is true');
    const around = /** @type {string[]} */ ([...(first ? [bos] : []), ...(last ? [eos] : [])]);
    if (around.length === 0) return null;
    const piece = (/** @type {string | undefined} */ id) => ({ SpecialToken: { id, type_id: 0 } });
    const text = (/** @type {string} */ id, /** @type {number} */ type_id) => ({ Sequence: { id, type_id } });
    const framed = (/** @type {Json} */ inner) => [...(first ? [piece(bos)] : []), inner, ...(last ? [piece(eos)] : [])];
    const special = around.map((content) => [content, { id: content, ids: [vocab[content]], tokens: [content] }]);
    const [single, pair] = [framed(text('A', 0)), [...framed(text('A', 0)), ...framed(text('B', 1))]];
    return { type: 'TemplateProcessing', single, pair, special_tokens: Object.fromEntries(special) };
  }
}

/** The sections that an exporter of this program kept. @param {string} text @param {string} path */
function restOf(text, path) {
  try {
    return Object.fromEntries(Object.entries(JSON.parse(text)).filter(([key]) => SECTIONS.includes(key)));
  } catch (cause) {
    throw new Error(`${path}: the key "${REST}" is not JSON: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}
