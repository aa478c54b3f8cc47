/** Chat templates: render messages to the text format that a model was trained on. */

import { Template } from '@huggingface/jinja';
import { loadTokenizer, specialTokens } from './load.mjs';

/** The templates that were parsed last: a fine-tuning set renders one for every turn. @type {Map<string, Template>} */
const parsed = new Map();
const KEPT = 16;

/** @param {string} source @returns {Template} */
function templateOf(source) {
  const known = parsed.get(source) ?? new Template(source);
  if (parsed.size >= KEPT) parsed.clear();
  parsed.set(source, known);
  return known;
}

/**
 * Renders messages with a tokenizer's chat template, as `apply_chat_template` of transformers.
 * @param {import('./load.mjs').Tokenizer | string} tokenizerOrFolder
 * @param {readonly object[]} messages with `role` and `content`, and whatever else the template reads
 * @param {object} [options]
 * @param {boolean} [options.addGenerationPrompt] whether to append the start of the model's turn; false when left out
 * @param {readonly unknown[]} [options.tools] tools that the model may call, as JSON schemas; selects the template named `tool_use` if there is one
 * @param {string} [options.name] the name of the template; `default` when left out
 * @param {Record<string, unknown>} [options.variables] further variables of the template, such as `enable_thinking`
 * @returns {string} encode it with `addSpecial: false`: it contains the special tokens already
 * @throws {Error} if there is no such template, or with the template's message if it refuses the messages (`raise_exception`)
 */
export function applyChatTemplate(tokenizerOrFolder, messages, { addGenerationPrompt = false, tools, name, variables } = {}) {
  const { chatTemplates, config } = typeof tokenizerOrFolder === 'string' ? loadTokenizer(tokenizerOrFolder) : tokenizerOrFolder;
  const chosen = name ?? (tools !== undefined && chatTemplates.tool_use !== undefined ? 'tool_use' : 'default');
  if (chatTemplates[chosen] === undefined) {
    const known = Object.keys(chatTemplates);
    const has =
      known.length === 0
        ? 'no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)'
        : `the templates ${known.join(', ')}`;
    throw new Error(`the tokenizer has ${has}${known.length === 0 ? '' : `; wanted: ${chosen}`}`);
  }
  try {
    return templateOf(chatTemplates[chosen]).render({
      ...specialTokens(config),
      ...variables,
      messages,
      tools: tools ?? null,
      add_generation_prompt: addGenerationPrompt,
    });
  } catch (cause) {
    throw new Error(`the chat template ${chosen} refuses these messages: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}
