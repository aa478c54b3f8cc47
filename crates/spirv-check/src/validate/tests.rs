//! What is allowed and what is not, compared with `spirv-val` where that is installed.

use super::*;
use crate::reflect;
use crate::tests::compile;
use glslang::SpirvVersion;
use std::io::Write as _;
use std::process::{Command, Stdio};

fn support() -> Support {
    Support {
        version: 0x1_0600,
        capabilities: declarations::CAPABILITIES.to_vec(),
        shared_bytes: 200 << 10,
    }
}

fn glsl(source: &str) -> Vec<u32> {
    let head = "#version 460
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_clustered : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
layout(local_size_x = 8) in;
";
    compile(SpirvVersion::SPIRV1_6, &format!("{head}{source}"))
}

fn secured(source: &str) -> Vec<u32> {
    let words = secure(&glsl(source), &[], &support());
    words.unwrap_or_else(|e| panic!("{e}\n{source}"))
}

fn refused(source: &str) -> String {
    let words = secure(&glsl(source), &[], &support());
    words.expect_err(source).to_string()
}

/// Opcodes of a module in order.
fn opcodes(words: &[u32]) -> Vec<u32> {
    let (mut at, mut list) = (5, Vec::new());
    while at < words.len() {
        list.push(words[at] & 0xffff);
        at += (words[at] >> 16) as usize;
    }
    list
}

const BUFFERS: &str = "struct Pair { vec2 a; uint b; };
layout(set = 0, binding = 0, std430) buffer A { float a[]; };
layout(set = 0, binding = 1, std430) buffer B { uint n; mat3 m; Pair pairs[4]; vec4 b[]; };
layout(push_constant) uniform Push { uint count; float scale; uint table[4]; } push;
";

/// Modules that compilers emit: all of them are allowed.
fn samples() -> Vec<String> {
    let bodies = [
        "",
        "for (uint i = 0; i < push.count; i++) { if (i == 3u) continue; if (a[i] < 0.0) break; a[i] *= push.scale; }",
        "uint i = 0; do { a[i] = float(i); i++; if (i > 20u) return; } while (i < push.count);",
        "while (true) { if (a[0] > 1.0) break; for (int k = 0; k < 4; k++) { if (a[k] == 2.0) break; a[k] += 1.0; } }",
        "switch (push.count) { case 0: a[0] = 1.0; break; case 1: a[1] = 2.0; case 2: a[2] = 3.0; break; default: a[3] = 4.0; }",
        "for (int i = 0; i < 9; i++) { switch (i) { case 1: continue; case 2: a[i] = 1.0; break; default: return; } a[i] = 5.0; }",
        "float x = a[0] > 0.0 && a[1] < 2.0 || b[0].x == 1.0 ? sin(a[2]) : pow(a[3], 2.0); a[0] = isnan(x) ? 0.0 : mix(x, 1.0, 0.5);",
        "float t[8]; for (int i = 0; i < 8; i++) t[i] = a[i]; a[0] = t[push.count] + t[3];",
        "vec4 v = b[gl_GlobalInvocationID.x]; v[push.count] = 1.0; a[0] = v[push.table[push.count]] + dot(v, v.wzyx);",
        "mat3 q = transpose(m) * m; a[0] = q[push.count][1] + determinant(inverse(q)); b[0].xyz = q * vec3(1);",
        "Pair p = pairs[push.count & 3u]; p.a *= 2.0; pairs[0] = p; a[0] = length(p.a);",
        "uint old = atomicAdd(n, 1u); a[old] = float(bitCount(old)) + uintBitsToFloat(old ^ 5u); atomicMax(n, 7u);",
        "a[0] = subgroupAdd(a[0]) + subgroupMax(a[1]) + subgroupShuffle(a[2], 3); n = subgroupBallotBitCount(subgroupBallot(a[0] > 1.0));",
        "float x = subgroupInclusiveAdd(a[0]); a[1] = subgroupBroadcast(x, 2) + subgroupClusteredAdd(x, 4) + subgroupBroadcastFirst(x);",
        "shared_[gl_LocalInvocationIndex] = a[gl_GlobalInvocationID.x]; barrier(); a[0] = shared_[push.count]; memoryBarrierShared();",
        "atomicAdd(counter, 2u, gl_ScopeDevice, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease); a[0] = float(counter);",
        "int k = int(push.count) - 5; a[0] = float(k / 3 + k % 4 + (k >> 1)) + float(findMSB(k)); a[1] = float(abs(k)) * fma(1.0, 2.0, a[2]);",
        "float16_t h = float16_t(a[0]); a[1] = float(h * h); uint16_t s = uint16_t(n); n = uint(s) + packHalf2x16(vec2(a[0], a[1]));",
        "double d = double(a[0]); a[0] = float(d * 2.0lf); uint64_t w = uint64_t(n) << 40; n = uint(w >> 32); int e; a[1] = frexp(a[2], e) + float(e);",
        "helper(2.0); a[0] = deep(3, a[1]); uint hi, lo; umulExtended(n, 7u, hi, lo); n = hi ^ lo; n = uint(a.length());",
        "if (push.count > 2u) { if (push.count > 5u) return; a[0] = 1.0; } else { while (a[0] < 5.0) { a[0] += 1.0; if (a[0] == 2.0) return; } }",
        "uvec3 w = gl_WorkGroupSize * gl_NumWorkGroups + gl_LocalInvocationID; a[0] = float(w[push.count]) + float(gl_SubgroupInvocationID);",
    ];
    let functions = "shared float shared_[64]; shared uint counter;
        void helper(float x) { if (x > a[0]) return; a[1] = x; }
        float deep(int k, inout float x) { for (int i = 0; i < k; i++) { if (x > 9.0) return x; x += 1.0; } return x * 2.0; }";
    let sample = |body: &&str| format!("{BUFFERS}{functions}\nvoid main() {{ {body} }}");
    bodies.iter().map(sample).collect()
}

#[test]
fn what_compilers_emit_is_let_through_and_stays_what_it_was() {
    for source in samples() {
        let words = glsl(&source);
        let once = secured(&source);
        let (before, after) = (reflect(&words).unwrap(), reflect(&once).unwrap());
        assert_eq!(
            (before.reads, before.writes),
            (after.reads, after.writes),
            "{source}"
        );
        assert_eq!(before.shared_bytes, after.shared_bytes, "{source}");
        // The output obeys the rules as well.
        assert!(secure(&once, &[], &support()).is_ok(), "{source}");
    }
}

#[test]
fn indices_into_memory_of_the_shader_are_bounded_and_those_into_buffers_left_to_the_device() {
    const COMPARE: u32 = Op::ULessThanEqual as u32;
    let bounds = |body: &str| {
        let words = secured(&format!(
            "{BUFFERS}shared float s[16]; void main() {{ {body} }}"
        ));
        opcodes(&words).iter().filter(|&&op| op == COMPARE).count()
    };
    assert_eq!(bounds("a[push.count] = b[push.count].x;"), 0);
    assert_eq!(bounds("a[0] = s[3];"), 0);
    assert_eq!(bounds("a[0] = s[push.count];"), 1);
    assert_eq!(bounds("s[push.count] = a[push.count];"), 1);
    assert_eq!(bounds("a[0] = float(push.table[push.count]);"), 1);
    assert_eq!(
        bounds("float t[4]; t[push.count] = 1.0; a[0] = t[push.count + 1u];"),
        2
    );
    assert_eq!(bounds("vec4 v = b[0]; a[0] = v[push.count];"), 1);
    assert!(refused(&format!("{BUFFERS}shared float s[16]; void main() {{ float t[1 << 20]; t[push.count] = 1.0; a[0] = t[3]; }}")).contains("16 KiB"));
}

#[test]
fn a_length_that_is_specialized_is_the_bound() {
    let source = format!(
        "layout(constant_id = 0) const uint N = 4; {BUFFERS}shared float s[N]; void main() {{ a[0] = s[push.count]; }}"
    );
    let last = |specialization: &[u32]| {
        let words = secure(&glsl(&source), specialization, &support()).unwrap();
        let mut constants = Vec::new();
        let mut at = 5;
        while at < words.len() {
            if words[at] == 4 << 16 | Op::Constant as u32 {
                constants.push(words[at + 3]);
            }
            at += (words[at] >> 16) as usize;
        }
        *constants.last().unwrap()
    };
    assert_eq!(last(&[]), 3);
    assert_eq!(last(&[100]), 99);
    let long = secure(&glsl(&source), &[60_000], &support())
        .unwrap_err()
        .to_string();
    assert!(long.contains("workgroup memory"), "{long}");
    assert!(secure(&glsl(&source), &[0], &support()).is_err());
}

#[test]
fn what_cannot_be_bounded_is_refused_by_name() {
    let text = refused(
        "layout(buffer_reference) buffer R { float x[]; }; layout(push_constant) uniform P { R r; };
         void main() { r.x[5] = 1.0; }",
    );
    assert!(text.contains("PhysicalStorageBufferAddresses"), "{text}");
    let mut few = support();
    few.capabilities.retain(|&c| c != 10);
    let words = glsl(&format!(
        "{BUFFERS}void main() {{ a[0] = float(double(a[1]) * 2.0lf); }}"
    ));
    let text = secure(&words, &[], &few).unwrap_err().to_string();
    assert!(text.contains("Float64"), "{text}");
    few.version = 0x1_0300;
    assert!(
        secure(&words, &[], &few)
            .unwrap_err()
            .to_string()
            .contains("version")
    );
}

/// A generator of 32-bit words (xorshift).
struct Random(u32);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 as usize % n.max(1)
    }
}

/// Where each instruction starts.
fn starts(words: &[u32]) -> Vec<usize> {
    let (mut at, mut list) = (5, Vec::new());
    while at < words.len() {
        list.push(at);
        at += ((words[at] >> 16) as usize).max(1);
    }
    list
}

fn damaged(words: &[u32], random: &mut Random) -> Vec<u32> {
    let mut words = words.to_vec();
    let starts = starts(&words);
    let from = starts[random.below(starts.len())];
    let length = (words[from] >> 16) as usize;
    let operand = from + 1.min(length - 1) + random.below(length.saturating_sub(1));
    match random.below(6) {
        0 => words[operand] = random.below(words[3] as usize) as u32,
        1 => words[operand] = words[operand].wrapping_add(1),
        2 => words[operand] ^= 1 << random.below(32),
        3 => {
            words.drain(from..from + length);
        }
        4 => words[from] = words[from] & 0xffff_0000 | random.below(420) as u32,
        _ => {
            let alike: Vec<usize> = starts
                .iter()
                .copied()
                .filter(|&s| words[s] == words[from])
                .collect();
            words[operand] = words[alike[random.below(alike.len())] + operand - from];
        }
    }
    words
}

/// `spirv-val`, by Vulkan's rules, on a module that it reads from its input.
fn spirv_val() -> Command {
    let mut command = Command::new("spirv-val");
    command.args(["--target-env", "vulkan1.3", "--scalar-block-layout", "-"]);
    command
}

/// Whether `spirv-val` accepts the module, or else its message.
fn valid(words: &[u32]) -> std::result::Result<(), String> {
    let mut child = spirv_val()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spirv-val starts");
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let written = child.stdin.take().expect("a pipe").write_all(&bytes);
    let output = child.wait_with_output().expect("spirv-val ends");
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() && written.is_ok() {
        Ok(())
    } else {
        Err(format!("{}, {written:?}: {text}", output.status))
    }
}

#[test]
fn nothing_that_spirv_val_rejects_goes_to_a_driver() {
    if let Err(error) = spirv_val().arg("--version").output() {
        // The tests' set-up installs it there.
        let must = cfg!(target_os = "linux") && std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!must, "no spirv-val to hold the rules against: {error}");
        return eprintln!("no spirv-val to hold the rules against: {error}");
    }
    let sources: Vec<Vec<u32>> = samples().iter().map(|s| secured(s)).collect();
    for words in &sources {
        assert_eq!(valid(words), Ok(()));
    }
    let (mut random, mut taken) = (Random(0x1234_5678), 0);
    let mut wrong = Vec::new();
    for round in 0..6000 {
        let words = damaged(&sources[round % sources.len()], &mut random);
        // As for a pipeline: reflected first.
        if reflect(&words).is_ok()
            && let Ok(words) = secure(&words, &[], &support())
        {
            taken += 1;
            let result = valid(&words);
            if let Err(text) = result {
                wrong.push(format!("{round}: {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(taken > 100, "{taken}");
}
