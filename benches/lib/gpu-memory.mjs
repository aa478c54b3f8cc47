/** Measures peak device memory while something runs, as `nvidia-smi` reports it. */

import { spawn } from 'node:child_process';

/**
 * Runs `work` and samples the device memory in use by all processes.
 * @template T
 * @param {() => Promise<T>} work
 * @param {number} [every] milliseconds between samples; many samples take time from the device's driver
 * @returns {Promise<{result: T, peakMiB: number | undefined}>} undefined without `nvidia-smi`
 */
export async function withPeakMemory(work, every = 200) {
  /** @type {number | undefined} */ let peak;
  const sampler = spawn('nvidia-smi', ['--query-gpu=memory.used', '--format=csv,noheader,nounits', '-lms', String(every)], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  sampler.on('error', () => {}); // not installed
  const stop = () => void sampler.kill();
  process.on('exit', stop);
  sampler.stdout.on('data', (chunk) => {
    for (const line of String(chunk).split('\n')) {
      const used = Number(line);
      if (line.trim() !== '' && Number.isFinite(used)) peak = Math.max(peak ?? 0, used);
    }
  });
  try {
    const result = await work();
    return { result, peakMiB: peak };
  } finally {
    process.off('exit', stop);
    stop();
  }
}
