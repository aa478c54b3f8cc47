// Diffusion on 2-D points (Ho et al. 2020): a small network learns to predict the noise in points of two half moons, and
// then turns noise into such points.
//
//   node examples/nn-diffusion.mjs [steps]

import { F, cat, compile, nn, noGrad, optim, scope, tensor } from 'helios-vk/nn';

const steps = Number(process.argv[2] ?? 1000);
const [T, BATCH] = [50, 256];
// A linear schedule of noise; signal[t] is what is left of a point after t steps.
const betas = Float32Array.from({ length: T }, (_, t) => 1e-3 + (0.2 * t) / T);
const signal = new Float32Array(T);
betas.reduce((product, beta, t) => (signal[t] = product * (1 - beta)), 1);

// Random numbers from a seed (mulberry32), so that every run is the same.
let state = 1;
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let z = Math.imul(state ^ (state >>> 15), state | 1);
  z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
  return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32;
}
const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
/** A point of two half moons. @returns {[number, number]} */
function moon() {
  const angle = Math.PI * random();
  const upper = random() < 0.5;
  return upper ? [Math.cos(angle) - 0.5, Math.sin(angle) - 0.25] : [0.5 - Math.cos(angle), 0.25 - Math.sin(angle)];
}

const model = new nn.Sequential(new nn.Linear(10, 128), new nn.SiLU(), new nn.Linear(128, 128), new nn.SiLU(), new nn.Linear(128, 2));
const features = (/** @type {number} */ t) => [1, 2, 4, 8].flatMap((f) => [Math.sin((f * t) / T), Math.cos((f * t) / T)]);

const opt = new optim.AdamW(model.parameters(), { lr: 2e-3, weightDecay: 0, schedule: { total: steps, finalLr: 1e-4 } });
const step = compile((noisy, time, noise) => {
  const loss = F.mseLoss(model.forward(cat([noisy, time], 1)), noise);
  loss.backward();
  opt.step();
  return loss;
});

let mean = 0;
for (let i = 0; i < steps; i++) {
  const [noisy, time, noise] = [[], [], []].map((list) => /** @type {number[][]} */ (list));
  for (let k = 0; k < BATCH; k++) {
    const t = Math.floor(T * random());
    const e = [normal(), normal()];
    noisy.push(moon().map((v, d) => Math.sqrt(signal[t]) * v + Math.sqrt(1 - signal[t]) * e[d]));
    time.push(features(t));
    noise.push(e);
  }
  const loss = scope(() => step(tensor(noisy), tensor(time), tensor(noise)));
  const value = await loss.item();
  loss.dispose();
  mean = i === 0 ? value : 0.98 * mean + 0.02 * value;
  if (i % 200 === 0 || i === steps - 1) console.log(`step ${i}: loss ${mean.toFixed(4)}`);
}

/** How far a point is from the moons. @param {number[]} point */
const distance = ([x, y]) =>
  Math.min(
    ...Array.from({ length: 64 }, (_, i) => (Math.PI * i) / 63).map((a) =>
      Math.min(Math.hypot(x - Math.cos(a) + 0.5, y - Math.sin(a) + 0.25), Math.hypot(x - 0.5 + Math.cos(a), y - 0.25 + Math.sin(a))),
    ),
  );
let points = Array.from({ length: BATCH }, () => [normal(), normal()]);
const near = () => points.filter((point) => distance(point) < 0.25).length;

// From noise to points, a step at a time.
const atFirst = near();
const predict = compile((x, time) => noGrad(() => model.forward(cat([x, time], 1))));
for (let t = T - 1; t >= 0; t--) {
  const time = points.map(() => features(t));
  const noise = scope(() => predict(tensor(points), tensor(time)));
  const e = await noise.toNested();
  noise.dispose();
  const clean = betas[t] / Math.sqrt(1 - signal[t]);
  points = points.map((p, k) =>
    p.map(
      (v, d) =>
        (v - clean * /** @type {number[][]} */ (e)[k][d]) / Math.sqrt(1 - betas[t]) +
        (t > 0 ? Math.sqrt((betas[t] * (1 - signal[t - 1])) / (1 - signal[t])) * normal() : 0),
    ),
  );
}
console.log(`within 0.25 of the moons: ${near()} of ${BATCH} points, and ${atFirst} of the noise`);
