/** Command lines of the benches, which are parsed as those of all other commands. */

export * from '../../bin/lib/options.mjs';
