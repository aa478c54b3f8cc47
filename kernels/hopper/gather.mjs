// Operands whose elements are gathered from an image, for convolutions as products without a copy of the windows.
//
// Forward passes and input gradients gather A. A row is a position of the result, and the depth runs over the window's taps and, in each, over the
// channels, which are neighbours in memory. A stage lies in one tap: channels are a multiple of its depth. So a chunk of a row lies in one pixel, and
// its address is the sum of two offsets: that of the row, constant throughout a tile, and that of the tap and channel, the same for all rows. Both
// are modulo 2^32, and either may be negative; the sum of a pixel that exists is not. Pixels outside of the image are zeros: each row has a mask with
// a bit for each row and for each column of the window that lies within the image.
//
// Weight gradients gather B: a column is a channel at a tap, 64 neighbours of which lie in one tap, and the depth runs over positions. A thread
// has one position of a stage, from which it takes a chunk at each of its columns' taps.

/** @typedef {import('./writer.mjs').Writer} Writer */

/**
 * Parameters of a launch, after those of the product. Strides count elements; `offset` and `step` are signed.
 * A position (h, w) of the result meets pixel (h · strideH + offsetH + i · stepH, …) at tap (i, j) of the window.
 */
export const GATHER_PARAMETERS = [
  ...['area', 'width', 'sizeH', 'sizeW', 'strideImage', 'strideRow', 'strideColumn'],
  ...['strideH', 'strideW', 'offsetH', 'offsetW', 'stepH', 'stepW', 'windowH', 'windowW', 'channels'],
].map((name) => ({ name, type: /** @type {const} */ ('u32') }));

/** Most taps of a window in a direction: half of a mask. */
export const MAX_TAPS = 16;

/**
 * The rows of which a thread fetches chunks.
 * @param {Writer} w @param {number} count of rows
 */
export function gatherRows(w, count) {
  const { p, tiling } = w;
  const [offsets, masks] = [p.registers('b32', count), p.registers('b32', count)];
  const valid = p.registers('pred', count);
  const [tapH, tapW, channel, shift, bits] = p.registers('b32', 5);
  const unitBytes = p.register('b32');
  /** @type {string} */
  let pointer;
  /** Sets the offset of a tap's channel, and the tap's bits. */
  const point = () => {
    const rows = p.b32('mul.lo.u32', p.b32('mul.lo.u32', tapH, p.parameter('stepH')), p.parameter('strideRow'));
    const pixel = p.b32('mad.lo.u32', p.b32('mul.lo.u32', tapW, p.parameter('stepW')), p.parameter('strideColumn'), rows);
    p.do('mad.lo.u32', shift, p.b32('add.u32', pixel, channel), 2, unitBytes);
    p.do('or.b32', bits, p.b32('shl.b32', 1, tapH), p.b32('shl.b32', 1 << MAX_TAPS, tapW));
  };
  /** Sets the bits of taps within the image in one direction. @param {string} mask @param {string} first @param {'H' | 'W'} side */
  const within = (mask, first, side) => {
    const at = p.b32('mov.u32', first);
    const left = p.b32('mov.u32', p.parameter(`window${side}`));
    const [step, size] = [p.parameter(`step${side}`), p.parameter(`size${side}`)];
    const bit = p.b32('mov.u32', side === 'H' ? 1 : 1 << MAX_TAPS);
    p.loop((done) => {
      p.branch(done, p.pred('setp.eq.u32', left, 0));
      // As unsigned numbers, those below 0 are large.
      p.do('or.b32', mask, mask, p.b32('selp.b32', bit, 0, p.pred('setp.lt.u32', at, size)));
      p.do('add.u32', at, at, step);
      p.do('shl.b32', bit, bit, 1);
      p.do('sub.u32', left, left, 1);
    });
  };
  return {
    /** Whether each row's chunk of the stage lies within the image; set by `check`. */
    valid,
    /**
     * Points at the first stage of a work item.
     * @param {import('./writer.mjs').Cursor} cursor @param {string[]} rows the product's rows; those beyond the last repeat it
     * @param {string} unit the channel of the thread's chunk in a stage
     */
    aim: ({ own, kBegin }, rows, unit) => {
      pointer = own.a;
      const last = p.b32('sub.u32', own.m, 1);
      rows.forEach((row, i) => {
        const position = p.b32('min.u32', row, last);
        const [area, width] = [p.parameter('area'), p.parameter('width')];
        const image = p.b32('div.u32', position, area);
        const rest = p.b32('sub.u32', position, p.b32('mul.lo.u32', image, area));
        const h = p.b32('div.u32', rest, width);
        const column = p.b32('sub.u32', rest, p.b32('mul.lo.u32', h, width));
        const y = p.b32('mad.lo.u32', h, p.parameter('strideH'), p.parameter('offsetH'));
        const x = p.b32('mad.lo.u32', column, p.parameter('strideW'), p.parameter('offsetW'));
        const line = p.b32('mad.lo.u32', y, p.parameter('strideRow'), p.b32('mul.lo.u32', image, p.parameter('strideImage')));
        p.do('shl.b32', offsets[i], p.b32('mad.lo.u32', x, p.parameter('strideColumn'), line), 1);
        p.do('mov.u32', masks[i], 0);
        within(masks[i], y, 'H');
        within(masks[i], x, 'W');
      });
      const channels = p.parameter('channels');
      const tap = p.b32('div.u32', kBegin, channels);
      p.do('sub.u32', channel, kBegin, p.b32('mul.lo.u32', tap, channels));
      const across = p.parameter('windowW');
      p.do('div.u32', tapH, tap, across);
      p.do('sub.u32', tapW, tap, p.b32('mul.lo.u32', tapH, across));
      p.do('shl.b32', unitBytes, unit, 1);
      point();
    },
    /** Finds which rows lie within the image at the stage's tap, and where `more` holds if it is given. @param {string} [more] */
    check: (more) =>
      masks.forEach((mask, i) => {
        const common = p.b32('and.b32', mask, bits);
        if (more) p.do('setp.eq.and.u32', valid[i], common, bits, more);
        else p.do('setp.eq.u32', valid[i], common, bits);
      }),
    /** The address of a row's chunk. @param {number} i */
    address: (i) => p.b64('mad.wide.u32', p.b32('add.u32', offsets[i], shift), 1, pointer),
    /** Advances by a stage. */
    next: () => {
      p.do('add.u32', channel, channel, tiling.bk);
      p.do('add.u32', shift, shift, 2 * tiling.bk);
      p.when(p.pred('setp.eq.u32', channel, p.parameter('channels')), () => {
        p.do('mov.u32', channel, 0);
        p.do('add.u32', tapW, tapW, 1);
        const ends = p.pred('setp.eq.u32', tapW, p.parameter('windowW'));
        p.do('add.u32', tapH, tapH, p.b32('selp.b32', 1, 0, ends));
        p.do('selp.b32', tapW, 0, tapW, ends);
        point();
      });
    },
  };
}

/**
 * The columns of which a thread fetches chunks: blocks of 64, at one position of each stage.
 * @param {Writer} w @param {number} count of blocks
 */
export function gatherColumns(w, count) {
  const { p, tiling } = w;
  const valid = p.registers('pred', count);
  const [shifts, downs, acrosses] = [p.registers('b32', count), p.registers('b32', count), p.registers('b32', count)];
  /** The thread's position: image, row and column; and what a stage adds to each. */
  const [at, steps] = [p.registers('b32', 3), p.registers('b32', 3)];
  const [offset, end, pixel] = p.registers('b32', 3);
  /** @type {string} */
  let pointer;
  /** Takes a number of positions apart. @param {string[]} to @param {import('./assembler.mjs').Operand} position */
  const apart = (to, position) => {
    const [area, width] = [p.parameter('area'), p.parameter('width')];
    const one = p.b32('mov.u32', position);
    p.do('div.u32', to[0], one, area);
    const rest = p.b32('sub.u32', one, p.b32('mul.lo.u32', to[0], area));
    p.do('div.u32', to[1], rest, width);
    p.do('sub.u32', to[2], rest, p.b32('mul.lo.u32', to[1], width));
  };
  /** Takes `size` from a coordinate that has reached it, and carries one to the next. @param {string} low @param {string} size @param {string} high */
  const carry = (low, size, high) => {
    const over = p.pred('setp.ge.u32', low, size);
    p.do('sub.u32', low, low, p.b32('selp.b32', size, 0, over));
    p.do('add.u32', high, high, p.b32('selp.b32', 1, 0, over));
  };
  return {
    valid,
    /**
     * Points at the first stage of a work item.
     * @param {import('./writer.mjs').Cursor} cursor @param {string[]} columns the product's columns; those beyond the last repeat it
     * @param {string} depth of the thread's position in a stage
     */
    aim: ({ own, kBegin, kEnd }, columns, depth) => {
      pointer = own.b;
      const last = p.b32('sub.u32', own.n, 8);
      const [channels, window] = [p.parameter('channels'), p.parameter('windowW')];
      columns.forEach((any, i) => {
        const column = p.b32('min.u32', any, last);
        const tap = p.b32('div.u32', column, channels);
        const channel = p.b32('sub.u32', column, p.b32('mul.lo.u32', tap, channels));
        const h = p.b32('div.u32', tap, window);
        const across = p.b32('sub.u32', tap, p.b32('mul.lo.u32', h, window));
        p.do('mul.lo.u32', downs[i], h, p.parameter('stepH'));
        p.do('mul.lo.u32', acrosses[i], across, p.parameter('stepW'));
        const line = p.b32('mad.lo.u32', downs[i], p.parameter('strideRow'), channel);
        p.do('shl.b32', shifts[i], p.b32('mad.lo.u32', acrosses[i], p.parameter('strideColumn'), line), 1);
      });
      p.do('add.u32', offset, kBegin, depth);
      p.do('mov.u32', end, kEnd);
      apart(at, offset);
      apart(steps, tiling.bk);
    },
    /** Finds which chunks of the stage lie within the image. */
    check: () => {
      const y = p.b32('mad.lo.u32', at[1], p.parameter('strideH'), p.parameter('offsetH'));
      const x = p.b32('mad.lo.u32', at[2], p.parameter('strideW'), p.parameter('offsetW'));
      const line = p.b32('mad.lo.u32', y, p.parameter('strideRow'), p.b32('mul.lo.u32', at[0], p.parameter('strideImage')));
      p.do('shl.b32', pixel, p.b32('mad.lo.u32', x, p.parameter('strideColumn'), line), 1);
      const inside = p.pred('setp.lt.u32', offset, end);
      const [height, width] = [p.parameter('sizeH'), p.parameter('sizeW')];
      valid.forEach((predicate, i) => {
        const row = p.pred('setp.lt.and.u32', p.b32('add.u32', y, downs[i]), height, inside);
        p.do('setp.lt.and.u32', predicate, p.b32('add.u32', x, acrosses[i]), width, row);
      });
    },
    /** The address of a block's chunk. @param {number} i */
    address: (i) => p.b64('mad.wide.u32', p.b32('add.u32', pixel, shifts[i]), 1, pointer),
    /** Advances by a stage. */
    next: () => {
      const [area, width] = [p.parameter('area'), p.parameter('width')];
      at.forEach((one, i) => p.do('add.u32', one, one, steps[i]));
      p.do('add.u32', offset, offset, tiling.bk);
      carry(at[2], width, at[1]);
      carry(at[1], p.b32('div.u32', area, width), at[0]);
    },
  };
}
