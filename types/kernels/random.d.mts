// Made by `npm run types` from kernels/; do not edit.
/** @param {KernelContext} context */
export function randomKernels(context: KernelContext): {
    /**
     * Fills a tensor with random numbers. Elements 4g … 4g + 3 are made of the words of Philox 4x32-10 (Salmon et al. 2011) under the
     * key `random[0..1]` and the counter (g, stream, random[2], random[3]): `bits` are the words; `uniform` is low + (high - low) · u,
     * where u is the upper 24 bits of a word over 2^24; `normal` takes two words for two elements (Box & Muller 1958), and lies within
     * 6.7 deviations of the mean.
     * @param {object} args
     * @param {Tensor} args.y out: [count] f32, of `bits` u32
     * @param {number} args.count elements
     * @param {Distribution} args.distribution what the elements are
     * @param {number} [args.low] of `uniform`: the least value; 0 when left out
     * @param {number} [args.high] of `uniform`: what values lie below, more than `low`; 1 when left out
     * @param {number} [args.mean] of `normal`; 0 when left out
     * @param {number} [args.deviation] of `normal`, at least 0; 1 when left out
     * @param {Tensor} args.random 4 u32: seed low, seed high, offset low, offset high (`STATE.seedLow` of an optimizer
     *   state moves on by itself)
     * @param {number} [args.stream] tells the draws of one step apart; 0 when left out
     * @returns {Dispatch}
     */
    random: (args: {
        /** out: [count] f32, of `bits` u32 */
        y: Tensor;
        /** elements */
        count: number;
        /** what the elements are */
        distribution: Distribution;
        /** of `uniform`: the least value; 0 when left out */
        low?: number | undefined;
        /** of `uniform`: what values lie below, more than `low`; 1 when left out */
        high?: number | undefined;
        /** of `normal`; 0 when left out */
        mean?: number | undefined;
        /** of `normal`, at least 0; 1 when left out */
        deviation?: number | undefined;
        /** 4 u32: seed low, seed high, offset low, offset high (`STATE.seedLow` of an optimizer state moves on by itself) */
        random: Tensor;
        /** tells the draws of one step apart; 0 when left out */
        stream?: number | undefined;
    }) => Dispatch;
};
export type Tensor = import("./base.mjs").Tensor;
export type Dispatch = import("./base.mjs").Dispatch;
export type KernelContext = import("./base.mjs").KernelContext;
export type Distribution = "bits" | "uniform" | "normal";
