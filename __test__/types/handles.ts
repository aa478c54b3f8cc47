/**
 * Handles and timeline values are numbers of different kinds: `tsc --noEmit` over this file proves that one kind does not
 * pass for another, and that plain numbers, as the trainer has them, pass for all.
 */
import type * as helios from '../../index.js';

export function kinds(vk: typeof helios): void {
  const buffer = vk.createBuffer(64);
  const pipeline = vk.createPipeline(new Uint32Array(5));
  const graph = vk.graphEnd();
  const value = vk.dispatch(pipeline, [buffer, { buffer, offset: 256 }], 1);
  const numbers: number[] = [buffer, pipeline, graph, value];
  const [plain = 0] = numbers;

  vk.readBuffer(buffer);
  vk.readBuffer(plain);
  vk.dispatch(plain, numbers, 1);
  vk.graphLaunch(graph);
  vk.waitTimeline(value);
  vk.waitTimeline(0);
  vk.setName(pipeline, 'name', 'pipeline');

  // @ts-expect-error a timeline value is no buffer
  vk.readBuffer(value);
  // @ts-expect-error a pipeline is no buffer
  vk.destroyBuffer(pipeline);
  // @ts-expect-error a graph is no buffer
  vk.uploadBuffer(graph, new Float32Array(4));
  // @ts-expect-error a buffer is no pipeline
  vk.dispatch(buffer, [buffer], 1);
  // @ts-expect-error a timeline value is no buffer, nor in a list of them
  vk.dispatch(pipeline, [buffer, value], 1);
  // @ts-expect-error nor in a range
  vk.dispatch(pipeline, [{ buffer: value }], 1);
  // @ts-expect-error a pipeline is no graph
  vk.graphLaunch(pipeline);
  // @ts-expect-error a buffer is no timeline value
  vk.waitTimeline(buffer);
  // @ts-expect-error a timeline value cannot be named
  vk.setName(value, 'name');
}
