// Made by `npm run types` from kernels/; do not edit.
/**
 * Where the table of a device lies.
 * @param {DeviceInfo} info
 * @param {string | false} [given] `tuning` of `createKernels`
 * @returns {{ path: string, named: boolean } | undefined} undefined where none is read; `named` where somebody asked for this file
 */
export function tableFile(info: DeviceInfo, given?: string | false): {
    path: string;
    named: boolean;
} | undefined;
/**
 * The content of a table's file.
 * @param {string} path @param {DeviceInfo} info of the device that it must be of
 * @returns {Stored}
 * @throws {Error} that says why it is not used
 */
export function readStored(path: string, info: DeviceInfo): Stored;
/**
 * The plans that were measured on this machine to be faster than those of the package; a table that is damaged or of another
 * device is passed over with a warning.
 * @param {DeviceInfo} info @param {string | false} [given] `tuning` of `createKernels`
 * @returns {((problem: Problem) => any) | undefined} the plan of a product, or undefined where none was measured
 */
export function storedPlans(info: DeviceInfo, given?: string | false): ((problem: Problem) => any) | undefined;
/**
 * Whether a table can be written to `path`, which stays as it was.
 * @param {string} path
 * @throws {Error} that says why it cannot
 */
export function tryToWrite(path: string): void;
/**
 * Writes a table, aside and renamed, so that a reader sees the old file or the new one, whole.
 * @param {string} path @param {Stored} stored
 * @throws {Error} that names the path, which is then as it was
 */
export function writeStored(path: string, stored: Stored): void;
/** @typedef {import('../../../index.js').DeviceInfo} DeviceInfo */
/** @typedef {import('./table.mjs').Problem} Problem */
/** Lines of a table by class, see table.mjs. @typedef {Partial<Record<typeof CLASSES[number], string[]>>} Lines */
/** @typedef {Pick<DeviceInfo, 'deviceName' | 'vendorId' | 'deviceId' | 'driverVersion' | 'driverInfo'>} Identity */
/**
 * A file's content.
 * @typedef {object} Stored
 * @property {string} format FORMAT
 * @property {Identity} device where it was measured
 * @property {string} date day of the last change
 * @property {Lines} faster products whose plan here is faster than the one that the package chooses by itself
 * @property {Lines} kept products that were measured and keep the package's plan, which a line has
 */
export const FORMAT: "helios-vk tuning 1";
/** What a table's device and driver are told by. @param {DeviceInfo} info @returns {Identity} */
export function identityOf({ deviceName, vendorId, deviceId, driverVersion, driverInfo }: DeviceInfo): Identity;
export type DeviceInfo = import("../../../index.js").DeviceInfo;
export type Problem = import("./table.mjs").Problem;
/**
 * Lines of a table by class, see table.mjs.
 */
export type Lines = Partial<Record<(typeof CLASSES)[number], string[]>>;
export type Identity = Pick<DeviceInfo, "deviceName" | "vendorId" | "deviceId" | "driverVersion" | "driverInfo">;
/**
 * A file's content.
 */
export type Stored = {
    /**
     * FORMAT
     */
    format: string;
    /**
     * where it was measured
     */
    device: Identity;
    /**
     * day of the last change
     */
    date: string;
    /**
     * products whose plan here is faster than the one that the package chooses by itself
     */
    faster: Lines;
    /**
     * products that were measured and keep the package's plan, which a line has
     */
    kept: Lines;
};
import { CLASSES } from './table.mjs';
