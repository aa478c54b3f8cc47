//! The reflection of SPIR-V: any words. Byte 0 says how many of the last words are the values of
//! specialization constants.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spirv_check::{reflect, reflect_with};

fuzz_target!(|data: &[u8]| {
    let Some((&constants, bytes)) = data.split_first() else {
        return;
    };
    let (words, _) = bytes.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let split = words.len() - usize::from(constants % 8).min(words.len());
    let (module, specialization) = words.split_at(split);
    let plain = match reflect(module) {
        Ok(plain) => plain,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let bound = 1u64
        .checked_shl(plain.bindings)
        .unwrap_or(0)
        .wrapping_sub(1);
    assert!(plain.bindings <= 32);
    assert_eq!(u64::from(plain.reads | plain.writes) & !bound, 0);
    assert!(plain.push_bytes <= plain.push_block_bytes.max(plain.push_bytes));
    // What is touched is known whatever the constants are.
    if let Ok(special) = reflect_with(module, specialization) {
        assert_eq!(special.bindings, plain.bindings);
        assert_eq!(special.reads, plain.reads);
        assert_eq!(special.writes, plain.writes);
        assert_eq!(special.address_reads, plain.address_reads);
        assert_eq!(special.address_writes, plain.address_writes);
    }
});
