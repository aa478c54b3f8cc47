//! Modules of random programs pass our validator and `spirv-val`. Damaged programs are errors.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::program::{LONE_ROWS, MAGIC, Op, Program, Template, value_args};
use super::*;
use spirv_check::{reflect, validate};

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n as u64) as usize
    }

    fn pick(&mut self, from: &[u32]) -> u32 {
        from[self.below(from.len())]
    }
}

/// A program with operations of every kind that its values allow.
fn random_program(random: &mut Random) -> Vec<u32> {
    let template = random.below(3) as u32;
    let controls = random.pick(&[0, 1, 2, 3, 4, 5, 8, 9, 11]);
    // Layouts of the flat template: widths and pairs; of all: whose conversions of halves.
    let layout = random.pick(&[0, 8])
        | if template == 0 {
            random.pick(&[0, 1, 2, 4, 5, 6])
        } else {
            0
        };
    let rank = random.below(5);
    let inputs = random.below(5);
    let scalars = random.below(3);
    let accesses: Vec<u32> = (0..9)
        .filter(|&access| match access {
            4 => rank > 0,
            6 | 7 => template > 0,
            8 => rank > 0 && template == 0,
            _ => true,
        })
        .collect();
    let accesses = &accesses[..];
    let mut words = vec![
        MAGIC,
        template | controls << 8 | layout << 16,
        random.pick(&[1, 8, 32, 64, 256, 1024][usize::from(template == 2)..]),
        rank as u32,
        inputs as u32,
        scalars as u32,
        0,
        0,
    ];
    for _ in 0..inputs {
        words.extend([random.below(8) as u32, random.pick(accesses)]);
    }
    for _ in 0..scalars {
        words.push(random.pick(&[0, 3, 4, 5]));
    }
    let outputs = 1 + random.below(3);
    let output = |value: usize, ty: u32, access: u32| [ty, access, value as u32];
    // Instructions that fit, found by trying.
    for _ in 0..random.below(40) {
        let values = inputs + scalars + words[6] as usize;
        for _ in 0..64 {
            let mut op = random.below(Op::ALL.len());
            if template > 0 && random.below(6) == 0 {
                op = Op::ALL.len() - 1 - random.below(3);
            }
            let mut args = [0; 3];
            for arg in args.iter_mut().take(value_args(Op::ALL[op])) {
                *arg = random.below(values.max(1)) as u32;
            }
            match Op::ALL[op] {
                Op::Const => {
                    args[0] = random.pick(&[0, 3, 4, 5]);
                    args[1] = random.pick(&[0, 1, 7, 0x3f80_0000]);
                }
                Op::Bits => args[1] = random.pick(&[0, 3, 4]),
                _ => {}
            }
            let mut tried = words.clone();
            tried.extend([op as u32, args[0], args[1], args[2]]);
            tried[6] += 1;
            tried[7] = 1;
            // Some type of output fits the new value.
            let fits = [0, 3, 4, 5].into_iter().any(|ty| {
                [0, 2].into_iter().any(|access| {
                    let mut whole = tried.clone();
                    whole.extend(output(values, ty, access));
                    Program::decode(&whole).is_ok()
                })
            });
            if fits {
                tried[7] = 0;
                words = tried;
                break;
            }
        }
    }
    if words[4] + words[5] + words[6] == 0 {
        words.extend([Op::Const as u32, 0, 0, 0]);
        words[6] = 1;
    }
    let values = (words[4] + words[5] + words[6]) as usize;
    for k in 1..=outputs {
        loop {
            let value = values - 1 - random.below(values.min(8));
            let mut tried = words.clone();
            let ty = random.below(8) as u32;
            let some = random.pick(accesses);
            let access = random.pick(&[0, 2, some]);
            tried.extend(output(value, ty, access));
            tried[7] = k as u32;
            if Program::decode(&tried).is_ok() {
                words = tried;
                break;
            }
        }
    }
    words
}

fn support() -> validate::Support {
    validate::Support {
        version: 0x1_0300,
        capabilities: vec![1, 4464, 4465, 4466],
        shared_bytes: 16 << 10,
    }
}

/// What spirv-val says, or nothing where it is not installed.
fn spirv_val(words: &[u32]) -> Option<Result<(), String>> {
    let mut child = Command::new("spirv-val")
        .args(["--target-env", "vulkan1.1", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    child.stdin.take()?.write_all(&bytes).ok()?;
    let output = child.wait_with_output().ok()?;
    Some(if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    })
}

/// Sides of selections that only lead to where both meet; see `Module::when`.
fn empty_sides(spirv: &[u32]) -> usize {
    let mut instructions = Vec::new();
    let mut at = 5;
    while at < spirv.len() {
        let length = (spirv[at] >> 16) as usize;
        instructions.push((spirv[at] & 0xffff, &spirv[at + 1..at + length]));
        at += length;
    }
    let (selection_merge, label, branch) = (247, 248, 249);
    let leads = |side: u32, merge: u32| {
        let wanted = [(label, &[side][..]), (branch, &[merge][..])];
        instructions.windows(2).any(|two| two == wanted)
    };
    let selections = instructions
        .windows(2)
        .filter(|two| two[0].0 == selection_merge);
    selections
        .flat_map(|two| [1, 2].map(|side| (two[1].1[side], two[0].1[0])))
        .filter(|&(side, merge)| leads(side, merge))
        .count()
}

#[test]
fn modules_of_random_programs_keep_the_rules() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut seen = vec![false; Op::ALL.len()];
    let (mut reduced, mut deep) = (0, 0);
    for round in 0..600 {
        let words = random_program(&mut random);
        let program = Program::decode(&words).unwrap();
        for instruction in &program.instructions {
            seen[instruction.op as usize] = true;
        }
        let depths = || {
            (0..program.live.len())
                .filter(|&v| program.live[v])
                .map(|v| program.depth[v])
        };
        reduced += i32::from(depths().any(|depth| depth > 0));
        deep += i32::from(depths().any(|depth| depth > 1));
        let spirv = build(&words).unwrap();
        assert_eq!(
            spirv,
            build(&words).unwrap(),
            "equal programs, equal modules"
        );
        assert_eq!(empty_sides(&spirv), 0, "{words:?}");
        let secured = validate::secure(&spirv, &[], &support());
        assert!(secured.is_ok(), "{:?}\n{words:?}", secured.err());
        let reflection = reflect(&spirv).unwrap();
        assert_eq!(
            reflection.bindings as usize,
            program.inputs.len() + program.outputs.len()
        );
        assert_eq!(
            reflection.push_block_bytes as usize,
            4 * program.push_words()
        );
        let lanes = match (program.template, program.lanes) {
            (Template::Row, 1) => LONE_ROWS,
            (_, lanes) => lanes,
        };
        assert_eq!(reflection.workgroup_size, [lanes, 1, 1]);
        // Inputs are read at most, outputs are written.
        assert_eq!(
            reflection.writes,
            reflection.used >> program.inputs.len() << program.inputs.len()
        );
        if round < 240
            && let Some(Err(error)) = spirv_val(&spirv)
        {
            panic!("spirv-val: {error}\n{words:?}");
        }
    }
    let missing: Vec<_> = Op::ALL.iter().filter(|&&op| !seen[op as usize]).collect();
    assert!(missing.is_empty(), "never tried: {missing:?}");
    assert!(
        reduced > 30 && deep > 5,
        "{reduced} with reductions, {deep} with one of another"
    );
}

#[test]
fn damaged_programs_are_errors_that_name_a_word_or_build_what_keeps_the_rules() {
    let mut random = Random(1);
    let (mut refused, mut built) = (0, 0);
    for _ in 0..3000 {
        let mut words = random_program(&mut random);
        for _ in 0..=random.below(2) {
            let at = random.below(words.len());
            match random.below(4) {
                0 => words[at] = random.below(64) as u32,
                1 => words[at] = u32::MAX >> random.below(32),
                2 => words.truncate(at),
                _ => words.insert(at, random.below(8) as u32),
            }
            if words.is_empty() {
                break;
            }
        }
        match build(&words) {
            Ok(spirv) => {
                built += 1;
                if built % 4 == 0 {
                    validate::secure(&spirv, &[], &support()).unwrap();
                }
            }
            Err(error) => {
                refused += 1;
                assert!(error.word <= words.len(), "{error}");
                assert!(!error.what.is_empty());
            }
        }
    }
    assert!(
        refused > 1000 && built > 20,
        "{refused} refused, {built} built"
    );
}

/// y = x + 1 of f32.
fn increment() -> Vec<u32> {
    let one = 1f32.to_bits();
    [
        &[MAGIC, 0, 64, 0, 1, 0, 2, 1, 0, 0][..],
        &[Op::Const as u32, 0, one, 0],
        &[Op::Add as u32, 0, 1, 0],
        &[0, 0, 2],
    ]
    .concat()
}

#[test]
fn float_controls_are_declared() {
    // Each execution mode of 32 bits, by its number and that of its capability.
    let modes = [(4461, 4466), (4459, 4464), (4460, 4465)];
    for controls in [0, 1, 2, 3, 4, 5, 8, 11] {
        let mut words = increment();
        words[1] |= controls << 8;
        let spirv = build(&words).unwrap();
        let declared = reflect(&spirv).unwrap().capabilities;
        for (bit, (mode, capability)) in modes.into_iter().enumerate() {
            let on = controls >> bit & 1 == 1;
            let set = spirv.windows(2).any(|pair| pair == [mode, 32]);
            assert_eq!((declared.contains(&capability), set), (on, on));
            let mut few = support();
            few.capabilities.retain(|&c| c != capability);
            assert_eq!(validate::secure(&spirv, &[], &few).is_err(), on);
        }
    }
}

#[test]
fn errors_name_the_word_and_the_reason() {
    let change = |at: usize, word: u32| {
        let mut words = increment();
        words[at] = word;
        build(&words).unwrap_err().to_string()
    };
    assert!(build(&increment()).is_ok());
    assert_eq!(change(0, 1), "word 0: 0x00000001 is not 0x314b5648");
    assert_eq!(change(1, 9), "word 1: no template 9");
    assert_eq!(change(1, 0x600), "word 1: no float controls 0x6");
    assert_eq!(change(1, 0x1000), "word 1: no float controls 0x10");
    assert_eq!(
        change(1, 0x3_0000),
        "word 1: no layout 0x3 of the Flat template"
    );
    assert_eq!(
        change(1, 0x4_0001),
        "word 1: no layout 0x4 of the Row template"
    );
    assert_eq!(
        change(9, 6),
        "word 9: access OfRow in a program of the flat template"
    );
    assert_eq!(
        change(2, 2000),
        "word 2: 2000 invocations in a workgroup, 1 to 1024 are allowed"
    );
    assert_eq!(
        change(9, 4),
        "word 9: a strided operand of a program without dimensions"
    );
    assert_eq!(change(10, 999), "word 10: no operation 999");
    assert_eq!(
        change(16, 2),
        "word 16: Add of value 2, of which there is none yet"
    );
    assert_eq!(
        change(17, 1),
        "word 17: Add takes 2 arguments; the others are 0"
    );
    assert_eq!(change(8, 3), "word 14: Add does not take [I32, F32]");
    assert_eq!(change(18, 3), "word 20: value 2 is F32, the output I32");
    assert_eq!(
        change(19, 1),
        "word 19: an output of type F32 cannot be Scalar"
    );
    assert_eq!(
        change(6, 3),
        "word 21: the header announces 25 words, got 21"
    );
    assert_eq!(
        build(&[MAGIC]).unwrap_err().to_string(),
        "word 1: a program begins with 8 words, this one ends here"
    );
}
