//! Checks that the launch of a kernel in PTX fits what its text declares and what its device runs. A launch that does
//! not fit loses the device, and the driver does not report it before.
//!
//! Pure: no device, no Vulkan. Instructions are not analysed; [`check`] says what is.
#![forbid(unsafe_code)]

mod text;

use thiserror::Error;

/// Largest shared memory of a block, static and dynamic, in bytes. More is legal PTX but loses the device (H200, driver
/// 580.159.04).
pub const MAX_SHARED: u64 = 48 << 10;
/// The same for a kernel in a cubin, which may declare some of its own.
pub const MAX_SHARED_CUBIN: u64 = MAX_SHARED - 1024;
/// Largest parameter block in bytes.
pub const MAX_PARAMETERS: u64 = 4096;

/// What all launches of a kernel have in common.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// PTX text, which may end with one NUL, or a cubin.
    pub data: &'a [u8],
    /// The kernel's name.
    pub entry: &'a str,
    /// Number of addresses at the start of the parameter block, 8 bytes each.
    pub bindings: usize,
    /// Bytes of push constants after them.
    pub push_bytes: u32,
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
}

/// The device's limits.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest number of threads of a block, by axis.
    pub block: [u32; 3],
    /// Largest number of threads of a block in total.
    pub threads: u32,
}

/// How a kernel declares its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameters {
    /// One parameter for the whole block, or none.
    Block,
    /// One of 8 bytes for each address, then one of 4 bytes for each word.
    Each,
    /// Any other way, or unknown.
    Other,
}

/// What does not fit; `argument` is the argument's name in JavaScript.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{argument} {problem}, got {value}")]
pub struct Fault {
    pub argument: &'static str,
    pub problem: String,
    pub value: String,
}

fn fault<T>(
    argument: &'static str,
    problem: impl Into<String>,
    value: impl ToString,
) -> Result<T, Fault> {
    Err(Fault {
        argument,
        problem: problem.into(),
        value: value.to_string(),
    })
}

impl Launch<'_> {
    fn parameter_bytes(&self) -> u64 {
        8 * self.bindings as u64 + u64::from(self.push_bytes)
    }

    fn threads(&self) -> u64 {
        self.block.iter().map(|&n| u64::from(n)).product()
    }

    /// What the text declares; none for a cubin.
    fn declared(&self) -> Result<Option<text::Entry>, Fault> {
        let unknown = |names: &str| {
            let problem = format!("must be the name of a kernel in the module ({names})");
            fault("entry", problem, format!("{:?}", self.entry))
        };
        if text::is_cubin(self.data) {
            return match text::cubin_has(self.data, self.entry) {
                true => Ok(None),
                false => unknown("a cubin"),
            };
        }
        let text = self.data.strip_suffix(b"\0").unwrap_or(self.data);
        if let Some(at) = text.iter().position(|&byte| byte == 0) {
            let problem = "must hold no NUL, which ends the text for the driver";
            return fault("ptx", problem, format!("one at byte {at}"));
        }
        let Ok(text) = std::str::from_utf8(text) else {
            return fault("ptx", "must be text (UTF-8) or a cubin", "neither");
        };
        match text::entry(text, self.entry) {
            Ok(entry) => Ok(Some(entry)),
            Err(names) if names.is_empty() => unknown("there is no .entry in it"),
            Err(names) => unknown(&names.join(", ")),
        }
    }

    /// Checks the block against the device.
    fn check_block(&self, limits: Limits) -> Result<(), Fault> {
        for axis in 0..3 {
            let most = limits.block[axis];
            if self.block[axis] == 0 || self.block[axis] > most {
                let axis = ["x", "y", "z"][axis];
                let problem = format!("must be from 1 to {most} in {axis} on this device");
                return self.wrong_block(problem);
            }
        }
        if self.threads() > u64::from(limits.threads) {
            let problem = format!(
                "must have at most {} threads on this device",
                limits.threads
            );
            return self.wrong_block(problem);
        }
        Ok(())
    }

    fn wrong_block<T>(&self, problem: String) -> Result<T, Fault> {
        fault("workgroupSize", problem, format!("{:?}", self.block))
    }
}

/// Checks a launch and returns how its parameters are declared. Checked are: the data (text or a cubin), a kernel of
/// that name, a block that the device and the text (`.reqntid`, `.maxntid`) allow, shared memory of at most
/// [`MAX_SHARED`] together with what the text declares, and a parameter block as large as the kernel's parameters.
///
/// For a cubin only the kernels' names are known.
pub fn check(launch: &Launch<'_>, limits: Limits) -> Result<Parameters, Fault> {
    if !launch.push_bytes.is_multiple_of(4) || launch.parameter_bytes() > MAX_PARAMETERS {
        let most = MAX_PARAMETERS.saturating_sub(8 * launch.bindings as u64);
        let problem = format!("must be a multiple of 4, at most {most} behind the addresses");
        return fault("pushBytes", problem, launch.push_bytes);
    }
    launch.check_block(limits)?;
    let dynamic = u64::from(launch.shared_bytes);
    let Some(entry) = launch.declared()? else {
        if dynamic > MAX_SHARED_CUBIN {
            let problem = format!("must be at most {MAX_SHARED_CUBIN}: more loses the device");
            return fault("sharedBytes", problem, dynamic);
        }
        return Ok(Parameters::Other);
    };
    if dynamic.saturating_add(entry.shared_bytes) > MAX_SHARED {
        let problem = format!(
            "must make at most {MAX_SHARED} with the {} bytes that the text declares: more loses the device",
            entry.shared_bytes
        );
        return fault("sharedBytes", problem, dynamic);
    }
    if let Some(required) = entry.required.filter(|r| *r != launch.block) {
        return launch.wrong_block(format!("must be the text's .reqntid, {required:?}"));
    }
    if let Some(most) = entry.most.filter(|&most| launch.threads() > most) {
        return launch.wrong_block(format!(
            "must have at most {most} threads, the text's .maxntid"
        ));
    }
    let Some(parameters) = entry.parameters else {
        return Ok(Parameters::Other);
    };
    let declared = parameters
        .last()
        .map_or(0, |p| p.offset.saturating_add(p.bytes));
    let given = launch.parameter_bytes();
    if declared.checked_next_multiple_of(4) != Some(given) {
        let problem = format!(
            "makes {given} bytes of parameters with 8 for each of {} bindings, but the kernel declares {declared}",
            launch.bindings
        );
        return fault("pushBytes", problem, launch.push_bytes);
    }
    let alone = |(i, p): (usize, &text::Parameter)| {
        let bytes = if i < launch.bindings { 8 } else { 4 };
        p.bytes == bytes
    };
    Ok(match parameters.as_slice() {
        [] | [_] => Parameters::Block,
        all if all.iter().enumerate().all(alone) => Parameters::Each,
        _ => Parameters::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        block: [1024, 1024, 64],
        threads: 1024,
    };
    const TEXT: &[u8] = b".extern .shared .b8 more[];
        .entry each(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 a) .maxntid 256 {
          .shared .align 16 .b8 tile[32768];
        }
        .entry block(.param .align 8 .b8 block[24]) .reqntid 64, 2 {}
        .entry bytes(.param .u64 x, .param .u64 y, .param .u64 n) {}
        .entry nothing {}\0";

    fn launch(entry: &str) -> Launch<'_> {
        Launch {
            data: TEXT,
            entry,
            bindings: 2,
            push_bytes: 8,
            block: [64, 2, 1],
            shared_bytes: 0,
        }
    }

    fn refused(launch: Launch<'_>, argument: &str, part: &str) {
        let fault = check(&launch, LIMITS).expect_err(part);
        assert_eq!(fault.argument, argument, "{fault}");
        assert!(fault.to_string().contains(part), "{fault}");
    }

    #[test]
    fn a_launch_that_fits_says_how_its_parameters_are_declared() {
        let found = |launch| check(&launch, LIMITS).unwrap();
        assert_eq!(found(launch("each")), Parameters::Each);
        assert_eq!(found(launch("block")), Parameters::Block);
        assert_eq!(found(launch("bytes")), Parameters::Other);
        let nothing = Launch {
            bindings: 0,
            push_bytes: 0,
            ..launch("nothing")
        };
        assert_eq!(found(nothing), Parameters::Block);
    }

    #[test]
    fn a_block_fits_device_and_text() {
        let sized = |entry, block| Launch {
            block,
            ..launch(entry)
        };
        refused(sized("bytes", [1025, 1, 1]), "workgroupSize", "1024 in x");
        refused(sized("bytes", [1, 1, 65]), "workgroupSize", "64 in z");
        refused(sized("bytes", [1, 0, 1]), "workgroupSize", "from 1");
        refused(
            sized("bytes", [1024, 2, 1]),
            "workgroupSize",
            "1024 threads",
        );
        refused(sized("block", [128, 1, 1]), "workgroupSize", "[64, 2, 1]");
        refused(sized("each", [257, 1, 1]), "workgroupSize", ".maxntid");
        assert!(check(&sized("each", [256, 1, 1]), LIMITS).is_ok());
    }

    #[test]
    fn shared_memory_counts_with_what_the_text_declares() {
        let shared = |entry, shared_bytes| Launch {
            shared_bytes,
            ..launch(entry)
        };
        assert!(check(&shared("each", 16_384), LIMITS).is_ok());
        refused(shared("each", 16_385), "sharedBytes", "32768 bytes");
        assert!(check(&shared("bytes", 49_152), LIMITS).is_ok());
        refused(shared("bytes", 49_153), "sharedBytes", "49152");
        refused(shared("bytes", u32::MAX), "sharedBytes", "loses the device");
    }

    #[test]
    fn the_parameter_block_is_the_declared_one() {
        let pushing = |bindings, push_bytes| Launch {
            bindings,
            push_bytes,
            ..launch("each")
        };
        refused(pushing(2, 4), "pushBytes", "declares 24");
        refused(pushing(3, 8), "pushBytes", "makes 32");
        refused(pushing(2, 6), "pushBytes", "multiple of 4");
        refused(pushing(32, 4096 - 252), "pushBytes", "at most 3840");
        // Two words and one of eight bytes are the same as one block, but not one by one.
        assert_eq!(check(&pushing(1, 16), LIMITS), Ok(Parameters::Other));
    }

    #[test]
    fn data_are_text_or_a_cubin_with_the_kernel_in_it() {
        let of = |data, entry| Launch {
            data,
            ..launch(entry)
        };
        refused(launch("eac"), "entry", "each, block, bytes, nothing");
        refused(of(b"", "each"), "entry", "no .entry");
        refused(of(b".entry k()\0{}", "k"), "ptx", "byte 10");
        refused(of(b".entry k() {}\0\0", "k"), "ptx", "NUL");
        refused(of(b".entry k() {} \xff", "k"), "ptx", "UTF-8");
        let cubin = b"\x7fELF\x02\0\0.text.k\0";
        assert_eq!(check(&of(cubin, "k"), LIMITS), Ok(Parameters::Other));
        refused(of(cubin, "kk"), "entry", "cubin");
        let large = Launch {
            shared_bytes: 48_129,
            ..of(cubin, "k")
        };
        refused(large, "sharedBytes", "48128");
    }
}
