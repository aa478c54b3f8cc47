/**
 * Runs every operation twice: on the device, and at once and serially on plain arrays.
 * After any sequence of calls both must have the same words ("as if serial").
 */
import { bits, groupsOf, pipelineOf, vk, words } from './addon.mjs';
import { sameWords } from './expect.mjs';
import { packBytes, packWords } from './packed.mjs';
import { addByAddress } from './programs.mjs';

/**
 * @typedef {{handle: number, data: Uint32Array, name: string}} TwinBuffer
 *
 * @typedef {object} Run one dispatch
 * @property {import('./programs.mjs').Program} program
 * @property {TwinBuffer[]} buffers
 * @property {Uint32Array} push
 * @property {number} [writeMask]
 */

export class Twin {
  /** True between batchBegin and batchSubmit. */
  open = false;
  /**
   * What was done, for the message of a failure.
   * @type {string[]}
   */
  log = [];
  #count = 0;
  /**
   * Between graphBegin and graphEnd: what a launch will do to the arrays.
   * @type {(() => void)[] | undefined}
   */
  #recorded;

  /**
   * Does something to the arrays now, or at every launch of the graph that is being recorded.
   * @param {() => void} effect
   */
  #apply(effect) {
    if (this.#recorded) this.#recorded.push(effect);
    else effect();
  }

  /**
   * @param {Uint32Array<ArrayBuffer>} data
   * @returns {TwinBuffer} that holds `data`
   */
  create(data, hostVisible = 1) {
    const buffer = { handle: vk.createBuffer(data.byteLength, hostVisible), data: data.slice(), name: `b${this.#count++}` };
    this.log.push(`${buffer.name} = create(${data.length} words, ${hostVisible})`);
    vk.uploadBuffer(buffer.handle, data);
    return buffer;
  }
  /** @param {TwinBuffer} buffer */
  destroy(buffer) {
    this.log.push(`destroy(${buffer.name})`);
    vk.destroyBuffer(buffer.handle);
    buffer.data = new Uint32Array(0);
  }

  /**
   * The record of one run of a program, after it was run on the arrays.
   * @param {Run} run
   */
  #run({ program, buffers, push, writeMask }) {
    this.log.push(`  ${program.name}(${buffers.map((b) => b.name)}; ${push}; mask ${writeMask})`);
    const arrays = buffers.map((b) => b.data);
    const constants = push.slice();
    this.#apply(() => program.run(arrays, constants));
    return {
      pipeline: pipelineOf(program),
      buffers: buffers.map((b) => b.handle),
      groups: groupsOf(push[0]),
      push,
      writeMask,
    };
  }

  /** @param {Run} run */
  dispatch(run) {
    this.log.push('dispatch');
    const { pipeline, buffers, groups, push } = this.#run(run);
    return vk.dispatch(pipeline, buffers, groups, 1, 1, push);
  }
  graphBegin() {
    this.log.push('graphBegin');
    this.#recorded = [];
    vk.graphBegin();
  }
  /** @returns {{handle: number, effects: (() => void)[]}} */
  graphEnd() {
    this.log.push('graphEnd');
    const effects = this.#recorded ?? [];
    this.#recorded = undefined;
    return { handle: vk.graphEnd(), effects };
  }
  /** @param {{handle: number, effects: (() => void)[]}} graph */
  launch(graph) {
    this.log.push(`launch(${graph.handle}), ${graph.effects.length} operations`);
    for (const effect of graph.effects) effect();
    return vk.graphLaunch(graph.handle);
  }
  begin() {
    this.log.push('begin');
    this.open = true;
    vk.batchBegin();
  }
  submit() {
    this.log.push('submit');
    this.open = false;
    return vk.batchSubmit();
  }
  /**
   * batchDispatch into the open batch, or in a batch of its own.
   * @param {Run} run
   */
  batched(run) {
    const own = !this.open;
    if (own) this.begin();
    this.log.push('batchDispatch');
    const { pipeline, buffers, groups, push, writeMask } = this.#run(run);
    if (writeMask === undefined) vk.batchDispatch(pipeline, buffers, groups, 1, 1, push);
    else vk.batchDispatch(pipeline, buffers, groups, 1, 1, push, Uint32Array.of(writeMask));
    return own ? this.submit() : undefined;
  }
  /**
   * A packed list: into the open batch, or in a batch of its own.
   * @param {'bytes' | 'words'} form
   * @param {Run[]} runs
   */
  packed(form, runs) {
    this.log.push(`packed ${form} ×${runs.length}`);
    const records = runs.map((run) => this.#run(run)).map((record) => ({ ...record, groups: [record.groups, 1, 1] }));
    const call = this.open ? vk.batchDispatchMany : vk.batchExecuteAll;
    return form === 'bytes' ? call(packBytes(records), records.length) : call(packWords(records));
  }
  /**
   * @param {TwinBuffer} buffer
   * @param {number} bytes
   * @param {number} pattern
   */
  fill(buffer, bytes, pattern) {
    this.log.push(`fill(${buffer.name}, ${bytes}, ${pattern})`);
    vk.fillBuffer(buffer.handle, bytes, pattern);
    const { data } = buffer;
    this.#apply(() => {
      data.fill(pattern, 0, bytes / 4);
    });
  }
  /**
   * @param {TwinBuffer} buffer
   * @param {Uint32Array} data
   */
  upload(buffer, data) {
    this.log.push(`upload(${buffer.name}, ${data.length} words)`);
    const source = data.slice();
    vk.uploadBuffer(buffer.handle, source);
    const [array, kept] = [buffer.data, data.slice()];
    this.#apply(() => array.set(kept));
    source.fill(0xbad0bad0); // the source is the caller's again
  }
  /**
   * @param {TwinBuffer} buffer
   * @param {Uint32Array} data
   */
  uploadAsync(buffer, data, byteOffset = 0) {
    this.log.push(`uploadAsync(${buffer.name}, ${data.length} words at ${byteOffset})`);
    const source = data.slice();
    const tv = vk.uploadAsync(buffer.handle, source, byteOffset);
    const [array, kept] = [buffer.data, data.slice()];
    this.#apply(() => array.set(kept, byteOffset / 4));
    source.fill(0xbad1bad1);
    return tv;
  }
  /**
   * c = a + b for n words through batchExecuteAllDGC; `dgcSetup` must have been called.
   * @param {TwinBuffer} a
   * @param {TwinBuffer} b
   * @param {TwinBuffer} c
   * @param {number} n
   */
  dgc(a, b, c, n) {
    this.log.push(`dgc(${a.name}, ${b.name}, ${c.name}; ${n})`);
    const tv = vk.batchExecuteAllDGC(Int32Array.of(a.handle, b.handle, c.handle, n, groupsOf(n), 1, 1).buffer, 1);
    const [x, y, z] = [a.data, b.data, c.data];
    this.#apply(() => {
      for (let i = 0; i < n; i++) z[i] = x[i] + y[i];
    });
    return tv;
  }
  /**
   * @param {TwinBuffer} source
   * @param {TwinBuffer} target
   * @param {number} length words
   * @param {number} from word in the source
   * @param {number} to word in the target
   */
  copy(source, target, length, from = 0, to = 0) {
    this.log.push(`copy(${source.name}, ${target.name}; ${length} words, ${from} to ${to})`);
    vk.copyBuffer(source.handle, target.handle, 4 * length, 4 * from, 4 * to);
    const [x, y] = [source.data, target.data];
    this.#apply(() => y.set(x.slice(from, from + length), to));
  }
  /** @param {TwinBuffer} buffer */
  read(buffer) {
    this.log.push(`read(${buffer.name})`);
    sameWords(words(buffer.handle), buffer.data, this.#story(buffer));
  }
  /**
   * Reads now, compares later: the array must stay as it was.
   * @param {TwinBuffer} buffer
   */
  readLater(buffer) {
    this.log.push(`readLater(${buffer.name})`);
    const [result, expected, story] = [vk.readBuffer(buffer.handle), buffer.data.slice(), this.#story(buffer)];
    return () => sameWords(bits(result), expected, `later, ${story}`);
  }
  /** @param {TwinBuffer} buffer */
  #story(buffer) {
    return `${buffer.name} after ${this.log.length} steps, the last of them\n${this.log.slice(-40).join('\n')}\n`;
  }
}

/** Makes batchExecuteAllDGC run c = a + b. */
export const setUpDgc = (maxSequences = 64) => vk.dgcSetup(pipelineOf(addByAddress), addByAddress.pushBytes, maxSequences);
