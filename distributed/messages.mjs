// Messages over a stream: one line of JSON each.

/** Longer than any message of ours; a stream without a line's end in so many characters is no peer. */
const MAX_LINE = 64 << 20;

/**
 * Calls `receive` with every message that arrives; what is none ends the connection.
 * @param {import('node:net').Socket} socket
 * @param {(message: any) => void} receive
 */
export function listen(socket, receive) {
  let rest = '';
  socket.setEncoding('utf8');
  socket.on('data', (/** @type {string} */ chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    try {
      if (rest.length > MAX_LINE) throw new Error('a line without an end');
      for (const line of lines) {
        const message = JSON.parse(line);
        if (message === null || typeof message !== 'object') throw new Error('no message');
        receive(message);
      }
    } catch {
      socket.destroy();
    }
  });
}

/** @param {import('node:net').Socket} socket @param {object} message */
export function send(socket, message) {
  if (socket.writable) socket.write(`${JSON.stringify(message)}\n`);
}
