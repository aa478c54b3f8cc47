/** The HTML page of a finished run: what was trained, how fast, and the curves. */

import { figures, htmlReport, lineChart, table } from './report.mjs';
import { formatBytes, formatCount, formatDuration, formatNumber } from '../../packages/lm/src/log/format.mjs';

/**
 * @param {any} result what `train.mjs --json` writes
 * @returns {string} one self-contained HTML page
 */
export function trainingReport(result) {
  const { config, losses, tokensPerSecond: rate } = result;
  const share = result.matrixShare;
  return htmlReport({
    title: 'Training run',
    subtitle: `${result.device} · ${formatCount(result.parameters)} parameters · ${config.precision} · ${result.mode}`,
    sections: [
      {
        title: 'In short',
        html: [
          figures([
            { value: result.finalLoss.toFixed(4), label: 'loss, mean of the last tenth of the steps' },
            { value: formatCount(rate.median), label: 'tokens a second, median' },
            { value: `${result.hostMillisecondsPerStep.toFixed(3)} ms`, label: 'host time a step' },
            ...(share === undefined ? [] : [{ value: `${(100 * share).toFixed(1)} %`, label: 'of the device’s matrix rate' }]),
            ...(result.memoryBytes === undefined ? [] : [{ value: formatBytes(result.memoryBytes), label: 'device memory' }]),
            { value: formatDuration(1000 * result.seconds), label: 'time' },
          ]),
        ],
      },
      {
        title: 'Loss',
        html: [
          lineChart({
            title: 'Cross-entropy in nats by step',
            xLabel: 'optimizer step',
            series: [{ name: 'loss', points: losses.map((/** @type {number} */ loss, /** @type {number} */ i) => [i, loss]) }],
          }),
        ],
      },
      {
        title: 'Speed',
        html: [
          lineChart({
            title: 'Tokens a second by step',
            xLabel: 'measured step',
            series: [
              {
                name: 'tokens a second',
                points: rate.perStep.map((/** @type {number} */ value, /** @type {number} */ i) => [i, value]),
              },
            ],
          }),
        ],
      },
      {
        title: 'Run',
        html: [
          table(
            ['setting', 'value'],
            [
              ['text', `${result.data}, ${formatCount(result.tokens)} tokens`],
              ['driver', result.driver],
              ['dispatches a step', formatCount(result.dispatchesPerStep)],
              ['tokens a second, lowest and highest', `${formatCount(rate.low)} to ${formatCount(rate.high)}`],
              ['GFLOP a token', formatNumber(result.flopsPerToken / 1e9, 4)],
              ...Object.entries(config).map(([key, value]) => [key, String(value)]),
            ],
          ),
        ],
      },
      ...(result.kernelTimes
        ? [
            {
              title: 'GPU time of a step',
              html: [
                table(
                  ['kernel', 'dispatches', 'ms', 'GFLOP/s'],
                  result.kernelTimes.map((/** @type {any} */ { role, count, microseconds, flops }) => [
                    role,
                    formatCount(count),
                    (microseconds / 1000).toFixed(3),
                    flops > 0 ? formatCount(Math.round(flops / (1000 * microseconds))) : '',
                  ]),
                ),
              ],
            },
          ]
        : []),
    ],
  });
}
