//! The hazard planner against the definition: a command needs a barrier if it conflicts with any
//! command since the last one, and that barrier names the stages of just those commands.
//!
//! A command is a byte (what it is, and how many bindings), then a byte for each binding: the buffer
//! in the low bits, whether it is read and written in the two highest.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plan::hazard::{Access, Marks, Stage, Stages, Tracker};

const BUFFERS: usize = 32;
/// The definition compares all pairs.
const MAX_COMMANDS: usize = 512;

/// A buffer, or none for what may touch every buffer.
type Touch = (Option<usize>, Access);

struct Command {
    touches: Vec<Touch>,
    stage: Stage,
}

fn hazard(first: &Command, second: &Command) -> bool {
    first.touches.iter().any(|(one, by)| {
        second.touches.iter().any(|(other, then)| {
            let meet = one.is_none() || other.is_none() || one == other;
            meet && ((by.write && (then.read || then.write)) || (by.read && then.write))
        })
    })
}

fuzz_target!(|data: &[u8]| {
    let mut tracker = Tracker::new();
    let mut marks = [Marks::default(); BUFFERS];
    let mut unordered: Vec<Command> = Vec::new();
    let mut bytes = data.iter().copied();
    for _ in 0..MAX_COMMANDS {
        let Some(kind) = bytes.next() else {
            return;
        };
        if kind & 0xe0 == 0xe0 {
            // The host has waited for everything.
            tracker.retire();
            unordered.clear();
            assert!(tracker.pending().is_empty());
            continue;
        }
        let stage = if kind & 0x40 == 0 {
            Stage::Compute
        } else {
            Stage::Transfer
        };
        let everything = kind & 0x80 != 0;
        let access = |byte: u8| Access {
            read: byte & 0x40 != 0,
            write: byte & 0x80 != 0,
        };
        let touches = if everything {
            let byte = bytes.next().unwrap_or(0xff);
            vec![(None, access(byte))]
        } else {
            let list = bytes.by_ref().take(usize::from(kind & 0x1f));
            list.map(|byte| (Some(usize::from(byte) % BUFFERS), access(byte)))
                .collect()
        };
        let command = Command { touches, stage };

        let needed = command.touches.iter().any(|(buffer, access)| match buffer {
            Some(buffer) => tracker.conflicts(&marks[*buffer], *access),
            None => tracker.conflicts_everything(*access),
        });
        assert_eq!(
            needed,
            unordered.iter().any(|before| hazard(before, &command))
        );
        if needed {
            let used = unordered
                .iter()
                .fold(Stages::NONE, |all, c| all | c.stage.into());
            assert_eq!(tracker.barrier(), used);
            unordered.clear();
        }
        for (buffer, access) in &command.touches {
            match buffer {
                Some(buffer) => tracker.note(&mut marks[*buffer], *access, command.stage),
                None => tracker.note_everything(*access, command.stage),
            }
        }
        if !command.touches.is_empty() {
            unordered.push(command);
        }
    }
});
