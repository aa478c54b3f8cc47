// Values as keys: two that differ have two keys.

/** Numbers that JSON writes as another: `null` for NaN and both infinities, `0` for -0. @param {string} _ @param {unknown} value */
const distinct = (_, value) =>
  typeof value === 'number' && (!Number.isFinite(value) || Object.is(value, -0))
    ? { number: Object.is(value, -0) ? '-0' : `${value}` }
    : value;

/** JSON that tells every two numbers apart. @param {unknown} value @returns {string} */
export const exact = (value) => JSON.stringify(value, distinct);
