// Command lines as options of functions.

/** Arguments with the options' names of today in place of earlier ones. @param {string[]} args @param {Readonly<Record<string, string>>} aliases */
export const modernArgs = (args, aliases) =>
  args.map((arg) => {
    const [, name, rest = ''] = /^--([\w-]+)(=[^]*)?$/.exec(arg) ?? [];
    return name && Object.hasOwn(aliases, name) ? `--${aliases[name]}${rest}` : arg;
  });

/**
 * Values of a command line by the names that options have in JavaScript; without what was left out, and switches that are off.
 * @param {Readonly<Record<string, unknown>>} values
 */
export function optionsOf(values) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== false);
  return Object.fromEntries(given.map(([name, value]) => [name.replaceAll(/-(\w)/g, (_, letter) => letter.toUpperCase()), value]));
}
