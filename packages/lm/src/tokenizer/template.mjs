/** Chat templates: messages to the text that a model was trained on. */

import { Template } from '@huggingface/jinja';
import { loadTokenizer } from './load.mjs';

/**
 * Renders messages by a tokenizer's chat template, in transformers' words.
 * @param {import('./load.mjs').Tokenizer | string} tokenizerOrFolder
 * @param {Record<string, any>[]} messages of `role` and `content`, as the template wants them
 * @param {object} [options]
 * @param {boolean} [options.addGenerationPrompt] with what begins the model's turn
 * @param {any[]} [options.tools] that the model may call; if the folder has a template named tool_use, it counts
 * @param {string} [options.name] of the template, where there are several
 * @param {Record<string, any>} [options.variables] more of what the template reads, like `enable_thinking`
 * @returns {string} encode it with `addSpecial: false`: the template has written the special tokens
 * @throws {Error} with the template's words, if it calls `raise_exception`
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
    throw new Error(`the tokenizer has ${has}; wanted: ${chosen}`);
  }
  /** @type {Record<string, string>} */
  const tokens = {};
  for (const [key, value] of Object.entries(config)) {
    const content = value?.content ?? value;
    if (key.endsWith('_token') && typeof content === 'string') tokens[key] = content;
  }
  try {
    return new Template(chatTemplates[chosen]).render({
      ...tokens,
      ...variables,
      messages,
      tools: tools ?? null,
      add_generation_prompt: addGenerationPrompt,
    });
  } catch (cause) {
    throw new Error(`the chat template ${chosen} refuses these messages: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}
