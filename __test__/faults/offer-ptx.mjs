/** Preloaded (`--import`): this process's devices run kernels in PTX by the stand-in for the extension after the `?`. */
import { install } from './layer.mjs';

install().offerPtx(/** @type {any} */ (new URL(import.meta.url).search.slice(1)));
