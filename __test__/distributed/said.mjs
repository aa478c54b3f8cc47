// What rank.mjs says: lines of JSON behind `@rank `, among whatever launchers print.

/**
 * Calls `heard` with each line, parsed.
 * @param {import('node:stream').Readable} output @param {(said: any) => void} heard
 */
export function listen(output, heard) {
  let rest = '';
  output.on('data', (chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const json = line.match(/@rank (\{.*\})/)?.[1];
      if (json) heard(JSON.parse(json));
    }
  });
}
