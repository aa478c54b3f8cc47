// Made by `npm run types` from distributed/; do not edit.
/**
 * Calls `receive` with every message that arrives; what is none ends the connection.
 * @param {import('node:net').Socket} socket
 * @param {(message: any) => void} receive
 */
export function listen(socket: import("node:net").Socket, receive: (message: any) => void): void;
/** @param {import('node:net').Socket} socket @param {object} message */
export function send(socket: import("node:net").Socket, message: object): void;
