// Files of the quick tier's suite that the runtimes and the emulated platforms run.

import { NOT_OF_THE_DEVICE, OF_ARITHMETIC, OF_FUNCTIONS, OF_KERNELS, OF_LM, SLOW, any, testFiles } from '../test-files.mjs';

export const QUICK = testFiles().filter((file) => !SLOW.test(file) && !OF_LM.includes(file));
/** The arithmetic of kernels and of functions of tensors, which the driver does. */
const OF_THE_DRIVER = any(OF_ARITHMETIC, OF_FUNCTIONS, OF_KERNELS);
/** Of the repository's own scripts, and not of what a program loads. */
const OF_SCRIPTS = any(NOT_OF_THE_DEVICE, /\/(bench-\w+|platforms|tune|release)\.test/);
const LOADED = /\/(load-error|nn\/(errors|examples|garbage|gpt|leaks))\.test/;

/** What is not of the driver. */
export const OF_ADDON = QUICK.filter((file) => !OF_THE_DRIVER.test(file));
/** Of these, what a program loads. */
export const OF_PROGRAMS = OF_ADDON.filter((file) => !OF_SCRIPTS.test(file) || LOADED.test(file));
