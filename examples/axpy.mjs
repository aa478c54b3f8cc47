// A shader of your own: y = y + a * x over a million elements, ten times.
//
//   node examples/axpy.mjs              runs the SPIR-V below
//   node examples/axpy.mjs --glsl       prints the shader's source
//   node examples/axpy.mjs axpy.spv     runs SPIR-V that you compiled
//
// SPIR-V comes from any compiler of shaders; glslangValidator is in Debian's glslang-tools, Homebrew's glslang and the
// Vulkan SDK (glslc, slangc and dxc do as well):
//
//   node examples/axpy.mjs --glsl > axpy.comp
//   glslangValidator -V axpy.comp -o axpy.spv
//
// Prints the device, then: y[0] = 10, y[999999] = 10

import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import vk from 'helios-vk';

const GLSL = `#version 460
layout(local_size_x = 64) in;
layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint count; float a; };

void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i < count) y[i] += a * x[i];
}
`;

/** The shader as `glslangValidator -g0 -V` compiles it, compressed, so that this file needs no compiler. */
const COMPILED = `
H4sIAAAAAAACA22TX09TQRDFh3tLrRaEW2jLv14KFVsLFhRaTIxGn+SBNz+BCS88wIt8AR78Pnw70MTEM9vf4trYZLN3zpxzZndmm2e9J2ZzVreandr0V1gmxIRVw/7l/O
v56PvNxehkfOT555YHnueWxJnXXtG6+nZ5bUFntiy8ErzMPsENXkLrcLa0zqRuULfHHrE5sErQ5QHL8Ci1V8k5f3vGw/mO5fB3tO8+5qbxTnKm/j9+FRvAXcN/8B//QeI/
nPEf4h/jCXde11rRLbKQz4Pev5vieP0umq5iDSYsx9uKn/Kdk3/G+R1/T1wH28dvIfFbJOd4Sy4F9UrlGuAF3BV8G3h7vArmZ22ijbWawfNvrTbcatBltqG9o5olNUrmU8
Lv0odt6nXpX5b496jn/Bf4F/j2E1+fSx/eKzwG+Ho8BPP8Ad9F0rMT3myMx9Q9UOQ1J3DGrIneR8bbMebzIGSemj7DGrP8LHQx/Iems/L5fKDOEvhHOdSIY24ZD9e3eZer
9Dxy1sHvxPF+b6Jz/F6eHc73S/xN/n8dzrqV+OwmtbzPe9TqwfFevQSPmv1HTTX09DV9bpGLuhG5H/L2+BCvUaI9YvYtzhK1b8jdon0Ldphoj2e03stjuD91z3hf339rqu
+0/gBXwdB8BAUAAA==`;

/** SPIR-V is 32-bit words. @param {Uint8Array} bytes */
const words = (bytes) => new Uint32Array(Uint8Array.from(bytes).buffer);

const [argument] = process.argv.slice(2);
if (argument === '--glsl') {
  process.stdout.write(GLSL);
  process.exit();
}
const spirv = words(argument === undefined ? gunzipSync(Buffer.from(COMPILED, 'base64')) : readFileSync(argument));

const { deviceName } = vk.initDevice();
const axpy = vk.createPipeline(spirv, 2, 8); // two storage buffers, eight bytes of push constants

const count = 1_000_000;
const x = vk.createBuffer(4 * count, 0); // bytes; 0: device-local
const y = vk.createBuffer(4 * count, 0);
vk.uploadBuffer(x, new Float32Array(count).fill(2));
vk.fillBuffer(y, 4 * count, 0);

const push = new DataView(new ArrayBuffer(8)); // as the shader declares it: uint count, float a
push.setUint32(0, count, true);
push.setFloat32(4, 0.5, true);

// Ten dispatches, each reading what the one before wrote. The addon finds the barriers between them from the SPIR-V.
vk.batchBegin();
for (let i = 0; i < 10; i++) vk.batchDispatch(axpy, [x, y], Math.ceil(count / 64), 1, 1, push);
vk.batchSubmit();

const result = vk.readBuffer(y); // the only call that waits
console.log(deviceName);
console.log(`y[0] = ${result[0]}, y[${count - 1}] = ${result[count - 1]}`);
vk.destroy();
