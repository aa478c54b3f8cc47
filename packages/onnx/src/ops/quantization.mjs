export const QUANTIZATION = {};
