#!/usr/bin/env node
// The pages of docs/reference/{addon,kernels,nn}: every public function, class and type, as Markdown, from the declarations
// (index.d.ts, types/) and their comments.
//
//   node scripts/reference.mjs
//
// The table of docs/api.md says on which page a call of the addon is. `made.mjs` says when this runs.

import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const TARGET = join(REPOSITORY, 'docs/reference');
const MADE = '<!-- Made by `npm run types`; do not edit. -->';

/** Pages of the kernels by the file that declares them; the first page has what is in no other file. @type {Record<string, string>} */
const KERNEL_PAGES = {
  'attention-layout': 'attention',
  base: 'devices',
  half: 'devices',
  index: 'devices',
  template: 'devices',
  bounds: 'devices',
};
/** Pages of helios-vk/nn by file or folder, those of single modules first. @type {Record<string, string>} */
const NN_PAGES = {
  tensor: 'tensor',
  methods: 'tensor',
  attention: 'functional',
  functional: 'functional',
  views: 'functional',
  math: 'math',
  losses: 'losses',
  criteria: 'losses',
  ctc: 'losses',
  'modules/losses': 'losses',
  'modules/activations': 'activations',
  'modules/convolution': 'convolution',
  'modules/shape': 'shape',
  'modules/norms': 'norms',
  'modules/recurrent': 'norms',
  'modules/containers': 'containers',
  'modules/dropout': 'containers',
  'modules/tables': 'containers',
  'modules/init': 'containers',
  'modules/utils': 'containers',
  norms: 'norms',
  recurrent: 'norms',
  pooling: 'pooling',
  'modules/pooling': 'pooling',
  network: 'network',
  dropouts: 'network',
  'modules/network': 'network',
  'modules/multihead': 'transformers',
  'modules/transformer': 'transformers',
  'more-math': 'more',
  elementwise: 'more',
  distributions: 'distributions',
  probability: 'distributions',
  linalg: 'linalg',
  decompositions: 'linalg',
  'matrix-functions': 'linalg',
  'linear-algebra': 'linalg',
  adapters: 'products',
  quantized: 'products',
  images: 'images',
  histograms: 'images',
  division: 'integers',
  'integer-rows': 'integers',
  scatter: 'indexing',
  integers: 'integers',
  binary: 'math',
  'optim/schedules': 'schedules',
  convolution: 'convolution',
  indexing: 'indexing',
  creation: 'creation',
  shape: 'shape',
  products: 'products',
  einsum: 'products',
  resample: 'resample',
  fft: 'fft',
  reductions: 'reductions',
  sorting: 'sorting',
  modules: 'modules',
  optim: 'optim',
  compile: 'compile',
};
/** The rest of helios-vk/nn: scopes, gradients, compile, types that several pages name. */
const NN_REST = 'scopes-and-steps';
/** The page for types of the addon that no call names. */
const ADDON_REST = 'addon/device';

/** The first lines of each page. @type {Record<string, string>} */
const INTROS = {
  'kernels/devices': '`createKernels` and what all kernels share',
  'nn/tensor': 'Tensors',
  'nn/functional': '`F`: operations as functions',
  'nn/activations': '`nn`: activations',
  'nn/losses': '`F` and `nn`: losses',
  'nn/norms': '`F` and `nn`: normalizations over channels, recurrent layers',
  'nn/containers': '`nn`: containers, tables, dropout of channels, `nn.init`, `nn.utils`',
  'nn/convolution': '`F` and `nn`: convolutions, `upsample`',
  'nn/pooling': '`F` and `nn`: pools',
  'nn/network': '`F` and `nn`: further layers, embeddings in bags, losses, dropout',
  'nn/transformers': '`nn`: transformers as PyTorch has them',
  'nn/more': '`F`: statistics, sets, polynomials, windows',
  'nn/distributions': '`F` and `distributions`: samples, and distributions as objects',
  'nn/linalg': '`F` and `F.linalg`: small matrices: solutions, inverses, determinants, factors, singular values',
  'nn/images': '`F`: images, boxes, blocks, histograms',
  'nn/integers': '`F`: integers: bits, whole quotients, order',
  'nn/indexing': '`F`: elements by index',
  'nn/math': '`F`: functions of elements, activations',
  'nn/creation': 'Sequences, grids, indices, tensors like others',
  'nn/shape': '`F`: elements in other places: padding, repetitions, triangles, diagonals, windows',
  'nn/products': '`F`: products and distances',
  'nn/resample': '`F`: images at other positions',
  'nn/fft': '`F`: Fourier transforms',
  'nn/reductions': '`F`: reductions and running results',
  'nn/sorting': '`F`: order, counts and choice',
  'nn/modules': '`nn`: modules',
  'nn/optim': '`optim`: optimizers',
  'nn/schedules': '`optim.schedules`: learning rates over steps',
  'nn/compile': '`compile`, its graphs, its choices of kernels',
  [`nn/${NN_REST}`]: 'Scopes, gradients, files',
};

/**
 * One thing on a page.
 * @typedef {object} Entry
 * @property {string} name
 * @property {ts.Node} node its declaration
 * @property {'function' | 'class' | 'type' | 'value'} kind
 */

/** A node's text without the indentation of the line that it starts in. @param {ts.Node} node */
function textOf(node) {
  const { character } = node.getSourceFile().getLineAndCharacterOfPosition(node.getStart());
  const line = node.getSourceFile().text.slice(node.getStart() - character, node.getStart());
  const indent = /^ */.exec(line)?.[0].length ?? 0;
  const text = indent > 0 ? node.getText().replace(new RegExp(`\n {1,${indent}}`, 'g'), '\n') : node.getText();
  return text
    .replace(/\/\*\*\s*\n\s*\* ([^*]*?)\s*\*\//g, (_, text) => `/** ${text.replace(/\s*\n\s*\*?\s*/g, ' ')} */`)
    .replace(/\bimport\("[^"]*"\)\./g, '')
    .replace(/\?: (.+) \| undefined(?=;|,|\)|$)/gm, '?: $1');
}

/** The last comment before a declaration. @param {ts.Node} node */
const commentOf = (node) => ts.getJSDocCommentsAndTags(node).filter(ts.isJSDoc).at(-1);

/** @param {string | ts.NodeArray<ts.JSDocComment> | undefined} comment */
const proseOf = (comment) =>
  (ts.getTextOfJSDocComment(comment) ?? '')
    .replace(/\{@link (\S+?)\}/g, '`$1`')
    // Outside `code`, Markdown would treat it as HTML.
    .split(/(`[^`]*`)/)
    .map((part, i) => (i % 2 ? part : part.replaceAll('<', '&lt;')))
    .join('')
    .trim();

/** @param {string} text */
const oneLine = (text) => text.replace(/\s*\n\s*/g, ' ');

/**
 * The contents of a comment: the text, parameters, result, and errors.
 * @param {ts.Node} node
 */
function documentation(node) {
  const comment = commentOf(node);
  const tags = comment?.tags ?? [];
  const parameters = /** @type {ts.JSDocParameterTag[]} */ (tags.filter((tag) => ts.isJSDocParameterTag(tag)))
    .map(({ name, comment }) => ({ name: name.getText(), text: oneLine(proseOf(comment)) }))
    // Those of an argument's properties are in the declaration.
    .filter(({ name }) => !name.includes('.'));
  const said = (/** @type {string} */ name) =>
    tags
      .filter(({ tagName }) => tagName.text === name)
      .map((tag) => oneLine(proseOf(tag.comment)))
      .filter(Boolean);
  return { text: proseOf(comment?.comment), parameters, returns: said('returns'), throws: said('throws') };
}

/** `name<T>(a: A, b?: B): C`. @param {string} name @param {ts.SignatureDeclaration} node @param {ts.Node} [documented] */
function signature(name, node, documented = node) {
  const named = documentation(documented).parameters;
  const parameters = node.parameters.map((parameter, i) => {
    const own = ts.isIdentifier(parameter.name) ? parameter.name.text : (named[i]?.name ?? 'options');
    const [rest, optional] = [parameter.dotDotDotToken ? '...' : '', parameter.questionToken ? '?' : ''];
    return `${rest}${own}${optional}${parameter.type ? `: ${textOf(parameter.type)}` : ''}`;
  });
  const types = node.typeParameters ? `<${node.typeParameters.map(textOf).join(', ')}>` : '';
  return `${name}${types}(${parameters.join(', ')})${node.type ? `: ${textOf(node.type)}` : ''}`;
}

/** Parameters, results and errors, as a list. @param {ReturnType<typeof documentation>} about @param {string} [indent] */
function details({ parameters, returns, throws }, indent = '') {
  return [
    ...parameters.filter(({ text }) => text !== '').map(({ name, text }) => `${indent}- \`${name}\`: ${text}`),
    ...returns.map((text) => `${indent}- Returns ${text}`),
    ...throws.map((text) => `${indent}- Throws ${text}`),
  ];
}

/** @param {string} code */
const block = (code) => `\`\`\`ts\n${code}\n\`\`\``;

/** A property of an object of kernels, or a function, with its signature. @param {Entry} entry */
function functionText({ name, node }) {
  const about = documentation(node);
  const type = ts.isPropertySignature(node) && node.type && ts.isFunctionTypeNode(node.type) ? node.type : node;
  return [about.text, block(signature(name, /** @type {ts.SignatureDeclaration} */ (type), node)), details(about).join('\n')];
}

/** Members that a user calls or reads, a line each. @param {ts.ClassDeclaration} node */
function memberLines(node) {
  /** @type {string[]} */
  const lines = [];
  for (const member of node.members) {
    if (!member.name && !ts.isConstructorDeclaration(member)) continue;
    if (member.name && (ts.isPrivateIdentifier(member.name) || member.name.getText() === '[inspect]')) continue;
    const about = documentation(member);
    const flags = ts.getCombinedModifierFlags(member);
    const prefix = `${flags & ts.ModifierFlags.Static ? 'static ' : ''}${flags & ts.ModifierFlags.Readonly ? 'readonly ' : ''}`;
    const name = member.name?.getText() ?? '';
    let text;
    if (ts.isConstructorDeclaration(member)) text = signature(`new ${node.name?.text}`, member);
    else if (ts.isMethodDeclaration(member)) text = signature(name, member);
    else if (ts.isGetAccessor(member)) text = `readonly ${name}${member.type ? `: ${textOf(member.type)}` : ''}`;
    else if (ts.isPropertyDeclaration(member))
      text = `${name}${member.questionToken ? '?' : ''}${member.type ? `: ${textOf(member.type)}` : ''}`;
    else continue;
    const code = oneLine(prefix + text).replace(/\s*\/\*\*.*?\*\/\s*/g, ' ');
    lines.push(`- \`${code}\`${about.text ? `: ${oneLine(about.text)}` : ''}`, ...details(about, '  '));
  }
  return lines;
}

/** @param {Entry} entry @returns {string[]} paragraphs */
function paragraphs(entry) {
  const { name, node, kind } = entry;
  if (kind === 'function') return functionText(entry);
  const { text } = documentation(ts.isVariableDeclaration(node) ? node.parent.parent : node);
  if (kind === 'class') {
    const { heritageClauses } = /** @type {ts.ClassDeclaration} */ (node);
    const base = heritageClauses ? ` ${heritageClauses.map(textOf).join(' ')}` : '';
    return [text, block(`class ${name}${base}`), memberLines(/** @type {ts.ClassDeclaration} */ (node)).join('\n')];
  }
  const code = textOf(ts.isVariableDeclaration(node) ? node.parent : node).replace(/^(export )?(declare )?/, '');
  return [text, block(code)];
}

/** The declarations, as TypeScript sees them. */
function program() {
  const roots = ['index.d.ts', 'types/kernels/index.d.mts', 'types/nn/index.d.mts'].map((file) => join(REPOSITORY, file));
  const made = ts.createProgram(roots, { module: ts.ModuleKind.NodeNext, strict: true, noEmit: true, target: ts.ScriptTarget.ES2023 });
  const checker = made.getTypeChecker();
  const file = (/** @type {number} */ i) => /** @type {ts.SourceFile} */ (made.getSourceFile(roots[i]));
  const exported = (/** @type {ts.Symbol} */ symbol) => checker.getExportsOfModule(symbol);
  const moduleOf = (/** @type {number} */ i) => exported(/** @type {ts.Symbol} */ (checker.getSymbolAtLocation(file(i))));
  return { checker, exported, addon: moduleOf(0), kernels: moduleOf(1), nn: moduleOf(2) };
}

/** Pages by name, such as `addon/memory`, with their entries in order. */
class Pages {
  /** @type {Map<string, Map<ts.Node, Entry>>} */
  pages = new Map();
  /** The page of each declaration that is on one. @type {Map<ts.Node, string>} */
  seen = new Map();
  /** The declarations that one names. @type {Map<ts.Node, Set<ts.Node>>} */
  named = new Map();

  /** @param {ts.TypeChecker} checker @param {(node: ts.Node, from: string) => string | undefined} pageOf
   *   the page for a type that something on page `from` names */
  constructor(checker, pageOf) {
    this.checker = checker;
    this.pageOf = pageOf;
  }

  /** The symbol that an alias stands for, even through `type A = import('…').A`. @param {ts.Symbol} symbol @returns {ts.Symbol} */
  target(symbol) {
    const own = symbol.flags & ts.SymbolFlags.Alias ? this.checker.getAliasedSymbol(symbol) : symbol;
    const declaration = own.declarations?.[0];
    if (declaration && ts.isTypeAliasDeclaration(declaration) && ts.isImportTypeNode(declaration.type) && declaration.type.qualifier) {
      const named = this.checker.getSymbolAtLocation(declaration.type.qualifier);
      if (named?.name === own.name) return this.target(named);
    }
    return own;
  }

  /** @param {string} page @param {string} name @param {ts.Node} node */
  add(page, name, node) {
    if (this.seen.has(node)) return;
    this.seen.set(node, page);
    const isFunction = ts.isFunctionDeclaration(node) || ts.isPropertySignature(node);
    const kind = isFunction ? 'function' : ts.isClassDeclaration(node) ? 'class' : ts.isVariableDeclaration(node) ? 'value' : 'type';
    if (!this.pages.has(page)) this.pages.set(page, new Map());
    this.pages.get(page)?.set(node, { name, node, kind });
    this.addNamed(node);
  }

  /** Links to what an entry names. @param {string} page @param {Entry} entry */
  links(page, { node }) {
    const links = [...(this.named.get(node) ?? [])].flatMap((declaration) => {
      const [to, name] = [this.seen.get(declaration), /** @type {ts.NamedDeclaration} */ (declaration).name?.getText()];
      if (to === undefined || name === undefined || declaration === node) return [];
      const [folder, file] = to.split('/');
      const path = to === page ? '' : page.startsWith(`${folder}/`) ? `${file}.md` : `../${to}.md`;
      return [`[${name}](${path}#${name.toLowerCase()})`];
    });
    return links.length > 0 ? `See ${[...new Set(links)].join(', ')}.` : '';
  }

  /** @param {string} page @param {ts.Symbol} symbol @param {string} [name] */
  addSymbol(page, symbol, name = symbol.name) {
    for (const declaration of this.target(symbol).declarations ?? []) this.add(page, name, declaration);
  }

  /** Types of this package that a declaration names, without those in a class's body. @param {ts.Node} node */
  addNamed(node) {
    /** @type {Set<ts.Node>} */
    const named = new Set();
    this.named.set(node, named);
    const look = (/** @type {ts.Node} */ child) => {
      if (ts.isPropertyDeclaration(child)) return;
      const name = ts.isTypeReferenceNode(child)
        ? child.typeName
        : ts.isImportTypeNode(child)
          ? child.qualifier
          : ts.isExpressionWithTypeArguments(child) // what it extends
            ? child.expression
            : undefined;
      const symbol = name && this.checker.getSymbolAtLocation(name);
      for (const declaration of (symbol && this.target(symbol).declarations) ?? []) {
        named.add(declaration);
        // The classes that tensors' methods are divided among stand on the page of tensors.
        const isMethods = ts.isClassDeclaration(declaration) && declaration.getSourceFile().fileName.includes('/nn/api/methods/');
        if (!ts.isTypeAliasDeclaration(declaration) && !ts.isInterfaceDeclaration(declaration) && !isMethods) continue;
        const page = this.pageOf(declaration, /** @type {string} */ (this.seen.get(node)));
        if (page !== undefined) this.add(page, declaration.name?.text ?? '', declaration);
      }
      ts.forEachChild(child, look);
    };
    ts.forEachChild(node, look);
  }
}

/** The table of the addon's calls: which page each stands on, what the page is about. @param {string} index docs/api.md */
function callsByPage(index) {
  /** @type {Map<string, string>} */
  const pageOf = new Map();
  /** @type {Map<string, string>} */
  const titles = new Map();
  for (const [, calls, title, page] of index.matchAll(/^\| (`.*?) \| (.*?)(?:; .*| \(\[.*)? \| `(addon\/[\w-]+)` \|/gm)) {
    for (const [, name] of calls.matchAll(/`(\w+)/g)) pageOf.set(name, page);
    titles.set(page, title);
  }
  return { pageOf, titles };
}

/** Every page's text. @returns {Map<string, string>} by name, such as `nn/tensor.md` */
function generate() {
  const { checker, exported, addon, kernels, nn } = program();
  const { pageOf, titles } = callsByPage(readFileSync(join(REPOSITORY, 'docs/api.md'), 'utf8'));
  const pageOfFile = (/** @type {ts.Node} */ node) => {
    const path = node.getSourceFile().fileName.replaceAll('\\', '/');
    const kernel = /\/types\/kernels\/([\w-]+)\.d\.mts$/.exec(path)?.[1];
    if (kernel) return `kernels/${KERNEL_PAGES[kernel] ?? kernel}`;
    const [, part, module] = /\/types\/nn\/(?:api\/)?([\w-]+)(?:\/([\w-]+))?/.exec(path) ?? [];
    if (part) return `nn/${NN_PAGES[`${part}/${module}`] ?? NN_PAGES[part] ?? NN_REST}`;
    return basename(path) === 'index.d.ts' && !path.includes('node_modules') ? ADDON_REST : undefined;
  };
  // Types of the addon are beside the first call that takes or returns them.
  const pages = new Pages(checker, (node, from) => {
    const page = pageOfFile(node);
    return page === ADDON_REST && from.startsWith('addon/') ? from : page;
  });

  for (const [name, page] of pageOf) {
    const symbol = addon.find((each) => each.name === name);
    if (!symbol) throw new Error(`docs/api.md: index.d.ts declares no ${name}`);
    pages.addSymbol(page, symbol);
  }
  for (const symbol of addon) {
    const node = symbol.declarations?.[0];
    if (node && ts.isFunctionDeclaration(node) && !pageOf.has(symbol.name))
      throw new Error(`docs/api.md: the table has no page for ${symbol.name}`);
    // What the loader adds is of no interest to users.
    if (node && (ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node))) pages.addSymbol(ADDON_REST, symbol);
  }
  const create = /** @type {ts.Symbol} */ (kernels.find(({ name }) => name === 'createKernels'));
  pages.addSymbol('kernels/devices', create);
  const [call] = checker.getTypeOfSymbol(create).getCallSignatures();
  for (const property of checker.getReturnTypeOfSignature(call).getProperties()) {
    const declaration = /** @type {ts.PropertySignature} */ (property.declarations?.[0]);
    // `typeof f` of an exported function has an entry of its own.
    if (declaration.type && ts.isFunctionTypeNode(declaration.type))
      pages.add(/** @type {string} */ (pageOfFile(declaration)), property.name, declaration);
  }
  for (const symbol of kernels) {
    const node = pages.target(symbol).declarations?.[0];
    if (node) pages.addSymbol(pageOfFile(node) ?? 'kernels/devices', symbol);
  }
  // `F`, `nn`, `optim` are modules, and have modules in them. Types that one of their files declares for itself are not part of them.
  const isType = (/** @type {ts.Symbol} */ { flags }) => (flags & ts.SymbolFlags.TypeAlias) !== 0;
  const addAll = (/** @type {ts.Symbol} */ symbol) => {
    const declared = pages.target(symbol).declarations?.[0];
    if (declared && ts.isSourceFile(declared))
      exported(pages.target(symbol))
        .filter((each) => !isType(each))
        .forEach(addAll);
    else if (declared) pages.addSymbol(pageOfFile(declared) ?? `nn/${NN_REST}`, symbol);
  };
  for (const symbol of nn) addAll(symbol);

  /** @type {Map<string, string>} */
  const texts = new Map();
  for (const [page, entries] of pages.pages) {
    const title = titles.get(page) ?? INTROS[page] ?? `Kernels: ${basename(page)}`;
    const order = (/** @type {Entry} */ { kind }) => (kind === 'type' ? 1 : 0);
    const sorted = [...entries.values()].sort((a, b) => order(a) - order(b));
    // Overloads of a function are below each other.
    const sections = sorted.flatMap((entry, i) => [
      entry.name === sorted[i - 1]?.name ? '' : `## ${entry.name}`,
      ...paragraphs(entry),
      pages.links(page, entry),
    ]);
    texts.set(`${page}.md`, `${[MADE, `# ${title}`, '[All pages](../README.md)', ...sections].filter(Boolean).join('\n\n')}\n`);
  }
  const index = [...texts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, text]) => `- [${/^# (.*)$/m.exec(text)?.[1]}](${name})`);
  texts.set(
    'README.md',
    `${MADE}\n\n# Reference\n\nEvery public function, class and type. [Which call is for what](../api.md)\n\n${index.join('\n')}\n`,
  );
  return texts;
}

rmSync(TARGET, { recursive: true, force: true });
for (const [name, text] of generate()) {
  mkdirSync(dirname(join(TARGET, name)), { recursive: true });
  writeFileSync(join(TARGET, name), text);
}
