/**
 * The kernels that devices get, as text:
 *
 *     node __test__/devices/choices.mjs > __test__/devices/choices.json
 */
import { fileURLToPath } from 'node:url';
import { createKernels } from '../../kernels/index.mjs';
import { USABLE, infoOf, needsOfPipeline, recorder } from './device.mjs';
import { CHOSEN, TooLarge, buildOn } from './problems.mjs';

/** Devices whose facts differ only in their name; those that have a table by name stay apart. @param {string[]} names */
export function groupsOf(names) {
  /** @type {Map<string, string[]>} */
  const groups = new Map();
  for (const name of names) {
    const { deviceName, apiVersion: _, ...rest } = infoOf(name);
    const key = JSON.stringify([/\bH[12]00\b/.test(deviceName), rest]);
    groups.set(key, [...(groups.get(key) ?? []), name]);
  }
  return [...groups.values()];
}

/** The kernels of a problem: names, sizes of workgroups, the size of subgroups if it is required, KiB of shared memory. @param {any} device @param {any[]} dispatches */
const textOf = ({ pipelines }, dispatches) =>
  dispatches
    .map(({ pipeline }) => {
      const made = pipelines.get(pipeline);
      const { workgroup, shared } = needsOfPipeline(made);
      const size = workgroup.filter((n, i) => i === 0 || n > 1).join('x');
      const { requiredSubgroupSize } = made.options;
      const kib = shared > 0 ? ` ${Math.round(shared / 102.4) / 10} KiB` : '';
      return `${made.name} ${size}${requiredSubgroupSize ? ` of ${requiredSubgroupSize}` : ''}${kib}`;
    })
    .join(' + ');

/** By problem, the kernels and the devices that get them. @returns {Record<string, Record<string, string>>} */
export function chosenNow() {
  /** @type {Record<string, Record<string, string[]>>} */
  const chosen = Object.fromEntries(CHOSEN.map(({ name }) => [name, {}]));
  for (const names of groupsOf(USABLE)) {
    const info = infoOf(names[0]);
    const device = recorder(info);
    const kernels = createKernels(device.vk, { tuning: false });
    for (const problem of CHOSEN) {
      let text = 'a tensor is larger than a binding';
      try {
        text = textOf(device, buildOn(problem, kernels, info, device.vk)) || 'none';
      } catch (error) {
        if (!(error instanceof TooLarge)) throw error;
      }
      const same = chosen[problem.name];
      same[text] = [...(same[text] ?? []), ...names];
    }
  }
  const joined = Object.entries(chosen).map(([name, by]) => [
    name,
    Object.fromEntries(Object.entries(by).map(([text, names]) => [text, names.join(', ')])),
  ]);
  return Object.fromEntries(joined);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const lines = Object.entries(chosenNow()).map(([name, by]) => {
    const each = Object.entries(by).map(([text, names]) => `    ${JSON.stringify(text)}: ${JSON.stringify(names)}`);
    return `  ${JSON.stringify(name)}: {\n${each.join(',\n')}\n  }`;
  });
  process.stdout.write(`{\n${lines.join(',\n')}\n}\n`);
}
