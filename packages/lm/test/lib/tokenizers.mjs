// Tokenizers for tests.

/**
 * A tokenizer of SentencePiece's BPE as transformers converts it: a merge for every way to make a token of two.
 * @param {any} json of a tokenizer that was trained, with one way for each token
 */
export function byMerges(json) {
  const rank = new Map(json.model.merges.map((/** @type {string[]} */ pair, /** @type {number} */ i) => [pair.join(''), i]));
  const { vocab } = json.model;
  const merges = [...rank.keys()].flatMap((token) =>
    Array.from({ length: token.length - 1 }, (_, i) => [token.slice(0, i + 1), token.slice(i + 1)]).filter(
      ([left, right]) => vocab[left] !== undefined && vocab[right] !== undefined,
    ),
  );
  return { ...json, model: { ...json.model, merges } };
}
