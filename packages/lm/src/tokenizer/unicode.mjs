/**
 * Code points that Hugging Face's `tokenizers` (0.23) treats by older versions of Unicode than Node.js does. Without these tables, ids would
 * depend on the Node.js version. Code points are hexadecimal.
 */

/**
 * A regular expression for code points in ranges.
 * @param {string} ranges @param {string} flags @param {string} [not] "^" matches runs of all other code points
 */
const setOf = (ranges, flags, not = '') => {
  const inside = ranges.replace(/[0-9a-f]+/g, '\\u{$&}').replaceAll(' ', '');
  return new RegExp(not === '' ? `[${inside}]` : `[^${inside}]+`, flags);
};

/** Assigned in Unicode 17, but unassigned in Oniguruma (Unicode 16): patterns must not match them as letters or digits. */
export const UNASSIGNED_IN_PATTERNS = setOf(
  '88f c5c cdc 1acf-1add 1ae0-1aeb 20c1 2b96 a7ce-a7cf a7d2 a7d4 a7f1 fbc3-fbd2 fd90-fd91 fdc8-fdce 10940-10959 10ec5-10ec7 ' +
    '10ed0-10ed8 10efa-10efb 11b60-11b67 11db0-11ddb 11de0-11de9 16ea0-16eb8 16ebb-16ed3 16ff2-16ff6 187f8-187ff 18d09-18d1e ' +
    '18d80-18df2 1ccfa-1ccfc 1ceba-1ced0 1cee0-1cef0 1e6c0-1e6de 1e6e0-1e6f5 1e6fe-1e6ff 1f6d8 1f777-1f77a 1f8d0-1f8d8 1fa54-1fa57 ' +
    '1fa8a 1fa8e 1fac8 1facd 1faea 1faef 1fbfa 2b73a-2b73f 2cea2-2cead 323b0-33479',
  'u',
);

/** Marks and compositions that the normalizers (Unicode 9) do not know: they are left as they are, and text on both sides is normalized apart. */
const NOT_NORMALIZED =
  '7fd 897-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1add 1ae0-1aeb 1df6-1dfa a82c 105c9 105d2 105da 105e4 10d24-10d27 10d69-10d6d ' +
  '10eab-10eac 10efa-10efb 10efd-10eff 10f46-10f50 10f82-10f85 11070 1133b 11382-11385 1138b 1138e 11390-11391 113c2 113c5 113c7-113c8 ' +
  '113ce-113d0 1145e 11839-1183a 11935 11938 1193d-1193e 11943 119e0 11a34 11a47 11a99 11d42 11d44-11d45 11d97 11f41-11f42 1611e ' +
  '16121-16129 1612f 16d63 16d67-16d6a 16ff0-16ff1 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef 1e6e3 1e6e6 1e6ee-1e6ef 1e6f5';
const NEWER = setOf(NOT_NORMALIZED, 'u');
const OLDER = setOf(NOT_NORMALIZED, 'gu', '^');

/** Normalizes as `tokenizers` does, by Unicode 9. @param {string} text @param {'NFC' | 'NFD'} form */
export const normalize = (text, form) => (NEWER.test(text) ? text.replace(OLDER, (part) => part.normalize(form)) : text.normalize(form));
