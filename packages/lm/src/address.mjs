// Addresses as clients and schemas write them.

/** An address without its codes (%20 …); one whose codes are wrong stays. @param {string} text */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
