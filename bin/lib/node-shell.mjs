// The remote shell of `helios-vk run` on several hosts: `node-shell.mjs [OPTION …] HOST COMMAND …`, called by MPI's launcher in place of
// ssh. It passes the command to `helios-vk run` on node rank 0, which is connected to the hosts, and exits as the command does.

import { connect } from 'node:net';

import { listen, send } from '../../distributed/messages.mjs';

const [port, key] = (process.env.HELIOS_NODE_SHELL ?? '').split(':');
const words = process.argv.slice(2);
const at = words.findIndex((word) => !word.startsWith('-'));
const socket = connect({ host: '127.0.0.1', port: Number(port) }, () => {
  send(socket, { key, host: words[at], command: words.slice(at + 1).join(' ') });
});
socket.on('error', ({ message }) => {
  console.error(`helios-vk: the launcher has exited: ${message}`);
  process.exit(1);
});
socket.on('close', () => process.exit(1));
listen(socket, (message) => {
  if (message.output) (message.output.fd === 1 ? process.stdout : process.stderr).write(Buffer.from(message.output.data, 'base64'));
  else if (message.ended !== undefined) process.exit(message.ended);
});
