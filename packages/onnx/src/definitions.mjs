// What graphs and operators are, for all that deal with them.

/** @typedef {import('./types.mjs').Type} Type */
/** @typedef {import('./value.mjs').Value} Value */
/** @typedef {import('./value.mjs').Constant} Constant */
/** @typedef {import('./types.mjs').Elements} Elements */

/**
 * An input or output: `shape` has a number for a fixed size and a name, or '', for one that each call chooses; undefined if the file does
 * not say it. `type` is undefined for what is no tensor.
 * @typedef {{ name: string, type: Type | undefined, shape: (number | string)[] | undefined }} Port
 */
/**
 * @typedef {object} Node
 * @property {string} op
 * @property {string} domain '' for ONNX's own
 * @property {string} name may be ''
 * @property {number} opset of its domain
 * @property {readonly string[]} inputs names; '' for one that is left out
 * @property {readonly string[]} outputs
 * @property {Attributes} attributes
 * @property {Operator} operator
 *
 * @typedef {object} Graph
 * @property {Port[]} inputs
 * @property {Port[]} outputs
 * @property {Node[]} nodes in an order in which each comes after those it depends on
 * @property {Map<string, Constant>} constants
 */
/**
 * Attributes that are one number; flags are 0 or 1.
 * @typedef {Record<'align_corners' | 'allowzero' | 'alpha' | 'antialias' | 'axis' | 'batch_axis' | 'batch_dims' | 'beta' | 'bias' | 'bits' |
 *   'block_size' | 'blocksize' | 'causal' | 'ceil_mode' | 'center_point_box' | 'channels_last' | 'clip' | 'count_include_pad' | 'cubic_coeff_a' |
 *   'decay_factor' | 'detect_negative' | 'detect_positive' | 'do_rotary' | 'dtype' | 'end' | 'epsilon' | 'exclude_outside' | 'exclusive' |
 *   'extrapolation_value' | 'fmod' | 'gamma' | 'gather_axis' | 'group' | 'hidden_size' | 'high' | 'ignore_index' | 'input_forget' | 'interleaved' |
 *   'inverse' | 'is_causal' | 'is_packed_batching' | 'K' | 'k' | 'keepdims' | 'kv_num_heads' | 'lambd' | 'largest' | 'layout' | 'left_window_size' |
 *   'linear_before_reset' | 'local_window_size' | 'low' | 'mask_filter_value' | 'mask_index_type' | 'max' | 'max_gram_length' | 'max_skip_count' |
 *   'mean' | 'min' | 'min_gram_length' | 'momentum' | 'N' | 'noop_with_empty_axes' | 'norm_coefficient' | 'norm_coefficient_post' | 'num_groups' |
 *   'num_heads' | 'num_outputs' | 'num_scan_inputs' | 'offset_group' | 'onesided' | 'opset' | 'output_datatype' | 'output_dtype' | 'output_height' |
 *   'output_width' | 'p' | 'periodic' | 'precision' | 'q_num_heads' | 'qk_matmul_output_mode' | 'quantize_axis' | 'ratio' | 'replaced_value_float' | 'replaced_value_int64' | 'reverse' |
 *   'right_window_size' | 'rotary_embedding_dim' | 'rotary_interleaved' | 'sampling_ratio' | 'select_last_index' | 'size' | 'smooth_softmax' |
 *   'softcap' | 'sorted' | 'spatial_scale' | 'start' | 'storage_order' | 'targets' | 'threshold' | 'time_axis' | 'to' | 'training_mode' | 'transA' |
 *   'transB' | 'transBatchA' | 'transBatchB' | 'unidirectional' | 'upper' | 'value_float', number>} NumberAttributes
 */
/**
 * Attributes that are several numbers.
 * @typedef {Record<'activation_alpha' | 'activation_beta' | 'activation_params' | 'axes' | 'classlabels_ints' | 'coefficients' | 'dilations' | 'ends' |
 *   'imputed_value_floats' | 'imputed_value_int64s' | 'intercepts' | 'kernel_shape' | 'ngram_counts' | 'ngram_indexes' | 'offset' | 'output_padding' | 'output_shape' | 'pads' | 'perm' |
 *   'pool_int64s' | 'qkv_hidden_sizes' | 'scales' | 'scan_input_axes' | 'scan_input_directions' | 'scan_output_axes' | 'scan_output_directions' | 'shape' |
 *   'split' | 'starts' | 'strides' | 'value_floats' | 'weights', number[]>} ListAttributes
 */
/**
 * Attributes that are one text.
 * @typedef {Record<'activation' | 'approximate' | 'auto_pad' | 'coordinate_transformation_mode' | 'direction' | 'equation' | 'keep_aspect_ratio_policy' |
 *   'mode' | 'nearest_mode' | 'norm' | 'padding_mode' | 'post_transform' | 'reduction' | 'update_rule' | 'value_string', string>} TextAttributes
 */
/**
 * Attributes of the operators that this package has, by their names in ONNX's schema. One that a node does not have is undefined. The types of
 * the schema are the caller's duty, as those of inputs are.
 * @typedef {object} OtherAttributes
 * @property {string[]} activations
 * @property {string[]} pool_strings
 * @property {string[]} value_strings
 * @property {number | number[]} scale several numbers in `ai.onnx.ml`
 * @property {Value | number} value a number in `Pad`
 * @property {Value} sparse_value
 * @property {Elements} value_int
 * @property {Elements} value_ints
 * @property {Graph} body
 * @property {Graph} then_branch
 * @property {Graph} else_branch
 * @property {Graph} score_mod
 * @property {Graph} prob_mod
 *
 * @typedef {NumberAttributes & ListAttributes & TextAttributes & OtherAttributes} Attributes
 */
/**
 * What an attribute of a file may be.
 * @typedef {number | string | number[] | string[] | Elements | Value | Value[] | Graph | Graph[] | null | undefined} AttributeValue
 */
/** Whether an attribute is a graph. @param {unknown} value @returns {value is Graph} */
export const isGraph = (value) => typeof value === 'object' && value !== null && 'nodes' in value;

/**
 * A value that is needed on the host.
 * @typedef {{ node: Node, input: string, value: Value }} Request
 */
/**
 * What an operator knows of its call.
 * @typedef {object} Call
 * @property {Node} node
 * @property {number} opset
 * @property {boolean} training whether the module trains
 * @property {(index: number) => boolean} wants whether an output is used
 * @property {() => void} turn is called before each turn of a loop; it throws where a run has had too many
 * @property {(graph: Graph, inputs: (Value | undefined)[]) => Generator<Request, (Value | undefined)[], void>} execute runs a graph of the node's attributes
 */
/** Inputs of a node; undefined for one that is left out. The types of ONNX's schema are the caller's duty. @typedef {Value[]} Inputs */

/**
 * What computes a node.
 * @typedef {object} Computed
 * @property {(inputs: Inputs, attributes: Attributes, call: Call) => Value | (Value | undefined)[]} run
 * @property {readonly number[] | 'all'} [host] inputs whose elements it needs on the host
 * @property {readonly number[]} [buffers] inputs that are no parameters when an initializer is there: statistics, scales
 */
/**
 * An operator that runs graphs of its attributes.
 * @typedef {object} Controlling
 * @property {(inputs: Inputs, attributes: Attributes, call: Call) => Generator<Request, (Value | undefined)[], void>} control
 * @property {readonly number[] | 'all'} [host]
 * @property {readonly number[]} [buffers]
 */
/** A function of the model. @typedef {{ body: Graph, host?: undefined, buffers?: undefined }} Called */
/** @typedef {Computed | Controlling | Called} Operator */
/** @typedef {Record<string, Computed | Controlling>} Table */

/** What names a node in errors. @param {{ op: string, domain: string, name: string, opset: number, outputs: readonly string[] }} node */
export const titleOf = ({ op, domain, name, opset, outputs }) =>
  `${domain ? `${domain}.` : ''}${op} '${name || outputs.find(Boolean) || ''}' (opset ${opset})`;
