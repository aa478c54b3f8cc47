// Types of a matrix product, from the arguments of a call to its dispatches. A problem is sizes, types and form. A tiling is the sizes of a
// kernel's tiles. A plan is a tiling, how it divides a problem among workgroups, and why it was chosen. A product is a problem and its operands.

/** @typedef {import('../base.mjs').Binding} Binding */
/** @typedef {import('../base.mjs').DType} DType */
/** @typedef {import('../hopper/form.mjs').GemmTiling} GemmTiling */
/** @typedef {import('../hopper/simt.mjs').SimtTiling} SimtTiling */
/** @typedef {import('../matmul.mjs').MatmulArgs} MatmulArgs */
/** @typedef {import('../matmul.mjs').Precision} Precision */

/** The name of a tiling of GEMM_TILINGS in kernels/hopper/tilings.mjs. @typedef {keyof typeof import('../hopper/tilings.mjs').GEMM_TILINGS} GemmTilingName */
/** The name of one of SIMT_TILINGS. @typedef {keyof typeof import('../hopper/tilings.mjs').SIMT_TILINGS} SimtTilingName */

/** @typedef {{ m: number, n: number, k: number, k2?: number }} Sizes rows and columns of the result, the inner size, and that of a second pair of operands */

/**
 * The properties of a product on which a tiling's speed depends.
 * @typedef {Sizes & { transA: boolean, transB: boolean, precision?: string, beta?: number, glu?: 'forward' | 'backward',
 *   again?: boolean, unit?: 'forward' | 'backward' }} Shaped `glu`: with SwiGLU or its gradient, `again`: and its result, `unit`: with an activation or its
 *   gradient; see `GemmForm`
 */

/**
 * The properties of a product by which tables find a plan.
 * @typedef {Shaped & { batch: number, beta: number, precision: string, aType: string, bType: string, bPermuted?: boolean }} Asked
 */

/**
 * A product's checked sizes and types, without its operands.
 * @typedef {object} ProblemParts
 * @property {Precision} precision
 * @property {'f16' | 'bf16'} half the half type of the precision
 * @property {DType} aType
 * @property {DType} bType
 * @property {DType} cType
 * @property {boolean} bPermuted
 * @property {boolean} dual a second output is stored, in `half`
 * @property {ProblemArgs} args as the caller gave them
 *
 * @typedef {Asked & ProblemParts} Problem
 */

/**
 * The arguments of a problem; tensors may be missing. `gateUp` is there where the product is the gradient of SwiGLU, `slopeOf` where it is that of
 * an activation.
 * @typedef {Partial<MatmulArgs> & { gateUp?: import('../base.mjs').Tensor, slopeOf?: import('../base.mjs').Tensor }} ProblemArgs
 */

/**
 * A tensor: its binding, the element of the binding at which it begins, and how many elements there are for it, where these are more than its own.
 * @typedef {{ buffer: Binding, offset: number, elements?: number }} Placed
 */

/**
 * The operands of a product and their strides.
 * @typedef {object} Operands
 * @property {Placed} a
 * @property {Placed} b
 * @property {Placed} c
 * @property {Placed} [h] second output
 * @property {Placed} [a2] of a second pair of operands, as `b2`
 * @property {Placed} [b2]
 * @property {number} [lda2]
 * @property {number} [ldb2]
 * @property {Placed} [bias]
 * @property {Placed} [residual] in the gradient of SwiGLU: gates and ups; in that of an activation: its argument
 * @property {number} lda
 * @property {number} ldb
 * @property {number} ldc
 * @property {number} ldr
 * @property {number} ldh
 * @property {number} alpha
 */

/**
 * The parts of a product that kernels which end in SwiGLU do not have.
 * @typedef {object} Ends
 * @property {number} strideA
 * @property {number} strideB
 * @property {number} strideC
 * @property {number} strideR
 * @property {number} strideH
 * @property {number} strideBias
 * @property {boolean} vec4 whether results are written four elements at a time
 * @property {boolean} toF32 whether f32 is all that is stored
 * @property {'gelu' | 'silu'} [activation]
 */

/** The part of a problem that launches use. @typedef {Omit<Problem, 'args' | 'precision' | 'bType'>} Computed */
/** A product as the kernels in PTX take it. @typedef {Computed & Operands & Partial<Ends>} PtxProduct */
/** A product with its operands. @typedef {Problem & Operands & Ends} Product */

/**
 * How the depth is split: everywhere in `splits` parts, or in `tail` parts for the tiles after the last whole wave of `wave`.
 * @typedef {{ splits?: number, wave?: number, tail?: number }} Split
 */

/**
 * A tiling of the kernels in ordinary arithmetic; see `MatmulPlan`.
 * @typedef {{ kernel: 'f32', bm: number, bn: number, bk: number, tm: number, tn: number, lx: number, stages: number }} F32Tiling
 */
/**
 * A tiling of the kernels on matrix units through SPIR-V.
 * @typedef {{ kernel: 'coop', bm: number, bn: number, bk: number, wm: number, wn: number, tm: number, tn: number, tk: number, stages: number,
 *   ahead?: number, direct?: number }} CoopTiling
 */
/** @typedef {F32Tiling | CoopTiling} SpirvTiling */
/**
 * A tiling in PTX by its name, and whether B must be permuted.
 * @typedef {{ kernel: 'ptx', tiling: GemmTilingName | SimtTilingName, permuted?: boolean }} PtxTiling
 */
/** The kernel for few rows; see `MatmulPlan`. @typedef {{ kernel: 'rows' }} RowsTiling */
/** A table's statement that PTX is not faster (`spirv`), or not with B permuted (`natural`). @typedef {{ kernel: 'spirv' | 'natural' }} Refusal */

/**
 * Why a plan was chosen.
 * @typedef {{ because?: string, fallback?: boolean, guess?: boolean }} Because
 *   `because`: the reason in a few words; `fallback`: a kernel that is likely faster cannot be used, or nothing was measured near the product;
 *   `guess`: the product itself was not measured
 */
/** The plan of a table's line. @typedef {(SpirvTiling | PtxTiling | RowsTiling | Refusal) & Split & Because} Choice */
/** @typedef {SpirvTiling & Split & Because} SpirvChoice */
/** @typedef {PtxTiling & Split & Because} PtxChoice */

/**
 * A plan of the SPIR-V kernels, with how it divides the depth.
 * @typedef {SpirvTiling & { splits: number, wave?: number, tail?: number, kPerSplit: number, whole: number, rest: number } & Because} SpirvPlan
 *   `whole`: tiles computed over the whole depth; `rest`: tiles computed in parts, where there is a tail
 */

/**
 * A plan of the kernels in PTX.
 * @typedef {object} PtxPlanParts
 * @property {'ptx'} kernel
 * @property {GemmTiling | SimtTiling} tiling
 * @property {number} bm
 * @property {number} bn
 * @property {number} bk
 * @property {number} stages
 * @property {number} splits
 * @property {number} [wave]
 * @property {number} [tail]
 * @property {ReturnType<typeof import('../hopper/form.mjs').division>} division
 * @property {import('../hopper/pads.mjs').Pad[]} [pads] copies that the kernel works on; see `padsOf`
 * @property {number} [rows] rows of the product that are computed at a time, for which `pads` and `division` are, where copies for all would be too
 *   large
 *
 * @typedef {PtxPlanParts & Because} PtxPlan
 */

/**
 * A plan of the kernel for few rows, with the size of its workgroups' tiles.
 * @typedef {RowsTiling & { bm: number, bn: number, bk: number, splits: number, kPerSplit: number } & Because} RowsPlan
 */

/** @typedef {SpirvPlan | RowsPlan | PtxPlan} Plan */

/** The part of a plan that the second pass uses. @typedef {{ bm: number, bn: number, splits: number, tail?: number, whole: number, rest: number }} Parts */

/** Memory for partial sums and tensor maps. @typedef {Placed | undefined} Work */

export {};
