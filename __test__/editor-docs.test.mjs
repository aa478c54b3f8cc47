// What an editor shows of the package: every export of `helios-vk`, `helios-vk/kernels` and `helios-vk/nn`, every kernel, every
// method of the classes of `helios-vk/nn`, and every property of an object that a function takes has a comment of its own.

import assert from 'node:assert/strict';
import { relative } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const REPOSITORY = fileURLToPath(new URL('../', import.meta.url));
const [native, kernels, nn] = ['index.d.ts', 'types/kernels/index.d.mts', 'types/nn/index.d.mts'].map((name) =>
  fileURLToPath(new URL(`../${name}`, import.meta.url)),
);
const program = ts.createProgram([native, kernels, nn], {
  module: ts.ModuleKind.NodeNext,
  target: ts.ScriptTarget.ES2023,
  lib: ['lib.es2023.d.ts', 'lib.esnext.disposable.d.ts'],
  strict: true,
  types: ['node'],
  typeRoots: [fileURLToPath(new URL('../node_modules/@types', import.meta.url))],
});
const checker = program.getTypeChecker();

/** @param {ts.Symbol} symbol */
const target = (symbol) => (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol);

/** Whether an editor has something to show. @param {ts.Symbol} symbol */
const documented = (symbol) =>
  [symbol, target(symbol)].some((each) => ts.displayPartsToString(each.getDocumentationComment(checker)).trim() !== '');

/** Whether it is declared here, and not in TypeScript's own libraries. @param {ts.Symbol} symbol */
const ours = (symbol) =>
  (symbol.declarations ?? []).some(
    (declaration) => !/(^|[\\/])(node_modules|\.\.)[\\/]/.test(relative(REPOSITORY, declaration.getSourceFile().fileName)),
  );

/**
 * Properties without a comment of the objects that a function or a constructor takes.
 * @param {string} name @param {ts.Type} type @returns {string[]}
 */
function undescribed(name, type) {
  return [...type.getCallSignatures(), ...type.getConstructSignatures()].flatMap((signature) =>
    signature.parameters.flatMap((parameter) =>
      objectsOf(checker.getTypeOfSymbol(parameter)).flatMap((object) => propertiesOf(name, object)),
    ),
  );
}

/** The objects of a union; numbers of a kind are none, and the members of classes are looked at once, there. @param {ts.Type} type @returns {ts.Type[]} */
function objectsOf(type) {
  if (type.isUnion()) return type.types.flatMap(objectsOf);
  if (type.isIntersection()) return type.types.some((part) => part.flags & ts.TypeFlags.NumberLike) ? [] : [type];
  return type.flags & ts.TypeFlags.Object && !type.isClass() && !(type.symbol?.flags & ts.SymbolFlags.Class) ? [type] : [];
}

/** @param {string} name @param {ts.Type} type */
const propertiesOf = (name, type) =>
  checker
    .getPropertiesOfType(type)
    .filter((property) => ours(property) && !documented(property))
    .map((property) => `${name}: ${property.name}`);

/** @param {string} file */
function exportsOf(file) {
  const source = program.getSourceFile(file);
  const module = source && checker.getSymbolAtLocation(source);
  assert.ok(module, file);
  return checker.getExportsOfModule(module);
}

for (const file of [native, kernels]) {
  const name = relative(REPOSITORY, file);
  test(`${name}: every export is documented`, () => {
    const all = exportsOf(file);
    assert.ok(all.length > 10);
    assert.deepEqual(
      all.filter((symbol) => !documented(symbol)).map((symbol) => symbol.name),
      [],
    );
  });

  test(`${name}: so is every property of what its functions take`, () => {
    const functions = exportsOf(file).filter((symbol) => target(symbol).flags & ts.SymbolFlags.Function);
    assert.ok(functions.length > 2);
    assert.deepEqual(
      functions.flatMap((symbol) => undescribed(symbol.name, checker.getTypeOfSymbol(target(symbol)))),
      [],
    );
  });
}

test('every kernel and what it takes is documented', () => {
  const symbol = exportsOf(kernels).find(({ name }) => name === 'Kernels');
  assert.ok(symbol);
  const all = checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(target(symbol)));
  assert.ok(all.length > 30);
  const missing = all.flatMap((kernel) => [
    ...(documented(kernel) ? [] : [kernel.name]),
    ...undescribed(kernel.name, checker.getTypeOfSymbol(kernel)),
  ]);
  assert.deepEqual(missing, []);
});

/**
 * The exports of `helios-vk/nn` by name, those of `F`, `nn` and `optim` as `F.name`, and so on inside of them.
 * @param {ts.Symbol[]} [symbols] @param {string} [prefix]
 * @returns {[name: string, symbol: ts.Symbol][]}
 */
const exportsOfNn = (symbols = exportsOf(nn), prefix = '') =>
  symbols.flatMap((symbol) =>
    target(symbol).flags & ts.SymbolFlags.ValueModule
      ? exportsOfNn(checker.getExportsOfModule(target(symbol)), `${prefix}${symbol.name}.`)
      : [/** @type {[string, ts.Symbol]} */ ([prefix + symbol.name, symbol])],
  );

/** What a class has besides what begins with an underscore. @param {string} name @param {ts.Symbol} symbol */
const membersOf = (name, symbol) =>
  checker
    .getPropertiesOfType(checker.getDeclaredTypeOfSymbol(target(symbol)))
    .filter((member) => ours(member) && !member.name.startsWith('_'))
    .map((member) => /** @type {[string, ts.Symbol]} */ ([`${name}.${member.name}`, member]));

test('types/nn/index.d.mts: every export and every method of its classes is documented', () => {
  const all = exportsOfNn();
  assert.ok(all.length > 80, `${all.length} exports`);
  const classes = all.filter(([, symbol]) => target(symbol).flags & ts.SymbolFlags.Class);
  assert.ok(classes.length > 10, `${classes.length} classes`);
  const methods = classes
    .flatMap(([name, symbol]) => membersOf(name, symbol))
    .filter(([, member]) => member.flags & (ts.SymbolFlags.Method | ts.SymbolFlags.Accessor));
  assert.ok(methods.length > 50, `${methods.length} methods`);
  assert.deepEqual(
    [...all, ...methods].filter(([, symbol]) => !documented(symbol)).map(([name]) => name),
    [],
  );
});

test('types/nn/index.d.mts: so is every property of what its functions, constructors and methods take', () => {
  const all = exportsOfNn();
  const missing = all.flatMap(([name, symbol]) => {
    const { flags } = target(symbol);
    if (!(flags & (ts.SymbolFlags.Function | ts.SymbolFlags.Class | ts.SymbolFlags.Variable))) return [];
    const type = checker.getTypeOfSymbol(target(symbol));
    const members = flags & ts.SymbolFlags.Class ? membersOf(name, symbol) : [];
    return [...undescribed(name, type), ...members.flatMap(([member, property]) => undescribed(member, checker.getTypeOfSymbol(property)))];
  });
  assert.deepEqual([...new Set(missing)], []);
});
