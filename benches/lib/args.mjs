/** Command lines of the benches: as those of everything else here. */

export * from '../../bin/lib/options.mjs';
