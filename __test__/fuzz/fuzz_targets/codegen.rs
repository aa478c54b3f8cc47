//! Programs of kernels: any words are an error that names one of them, or a module that keeps every rule of safe mode.
//!
//! Bytes are read as words of little endian. Where the first byte is odd, the header is made to fit the length, so that
//! what follows it is reached.
#![no_main]

use kernel_codegen::build;

use libfuzzer_sys::fuzz_target;
use spirv_check::{reflect, validate};

const MAGIC: u32 = 0x314b_5648;

fuzz_target!(|data: &[u8]| {
    let Some((&form, bytes)) = data.split_first() else {
        return;
    };
    let (words, _) = bytes.as_chunks::<4>();
    let mut words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if form % 2 == 1 && words.len() > 8 {
        let [inputs, scalars, outputs] = [words[4] % 6, words[5] % 4, 1 + words[7] % 3];
        let room = words.len() as u32 - 8;
        let taken = 2 * inputs + scalars + 3 * outputs;
        if room >= taken {
            let instructions = (room - taken) / 4;
            words.truncate((8 + taken + 4 * instructions) as usize);
            let template = words[1] % 3;
            words[..2].copy_from_slice(&[MAGIC, template]);
            words[2] = match template {
                0 => 1 + words[2] % 1024,
                // Powers of two, of the column template from 8 on.
                _ => 1 << (words[2] % 8 + 3 * (template - 1)),
            };
            words[3] %= 9;
            words[4..8].copy_from_slice(&[inputs, scalars, instructions, outputs]);
        }
    }
    match build(&words) {
        Ok(spirv) => {
            let support = validate::Support {
                version: 0x1_0300,
                capabilities: vec![1],
                shared_bytes: 16 << 10,
            };
            if let Err(error) = validate::secure(&spirv, &[], &support) {
                panic!("{error}: {words:?}");
            }
            let shader = reflect(&spirv).expect("what safe mode lets through");
            assert!(shader.bindings >= 1 && shader.writes != 0);
            assert_eq!(spirv, build(&words).expect("equal words"));
        }
        Err(error) => assert!(error.word <= words.len() && !error.what.is_empty()),
    }
});
