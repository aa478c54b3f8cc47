//! The stream as compact words, from the call that makes a command to the encoder that records it, so that another
//! thread may record.
//!
//! A command is a header word and the words of its kind. Writer and reader are side by side here; the words never leave
//! the process.
#![deny(unsafe_code)]

use crate::pipeline::Program;
use crate::plan::decode::BindingRange;
use crate::plan::hazard::Stages;

/// Words of one binding: buffer, offset, range, laid out as in `VkDescriptorBufferInfo`. For a kernel that takes
/// addresses the third word is the address of the buffer's first byte.
pub const BINDING_WORDS: usize = 3;

/// Narrows whole bindings ([`BINDING_WORDS`] words each) to `ranges`. An empty buffer stays whole. `sized`: whether the
/// third word is a size.
pub fn narrow(bindings: &mut [u64], ranges: &[BindingRange], sized: bool) {
    let (bindings, _) = bindings.as_chunks_mut::<BINDING_WORDS>();
    for ([_, offset, size], range) in bindings.iter_mut().zip(ranges) {
        *offset += range.offset;
        if sized && range.size > 0 {
            *size = range.size;
        }
    }
}

/// A Vulkan handle as a number.
pub type Raw = u64;

const DISPATCH: u64 = 0;
const BARRIER: u64 = 1;
const COPY: u64 = 2;
const FILL: u64 = 3;
const HOST_BARRIER: u64 = 4;
const RESET_QUERIES: u64 = 5;
const TIMESTAMP: u64 = 6;
const SUBMIT: u64 = 7;
const COPY_QUERIES: u64 = 8;
const HOST_WRITES: u64 = 9;
const WAIT: u64 = 10;

/// Bits of the header for its kind; each kind defines the others.
const KIND_BITS: u32 = 4;
const STAGES_SHIFT: u32 = 4;
const BINDINGS_SHIFT: u32 = 8;
const PUSH_SHIFT: u32 = 16;
const PROGRAM_SHIFT: u32 = 32;

/// One command, as the recorder reads it.
#[derive(Debug, PartialEq, Eq)]
pub enum Command<'a> {
    Dispatch {
        /// Source stages of the barrier before the command; empty for none.
        barrier: Stages,
        /// Slot of its pipeline.
        program: u32,
        groups: [u32; 3],
        /// [`BINDING_WORDS`] words for each binding.
        bindings: &'a [u64],
        /// Push constants in words; the last may be padded.
        push: &'a [u64],
        /// Bytes of push constants.
        push_bytes: usize,
    },
    Barrier(Stages),
    Copy {
        source: Raw,
        source_offset: u64,
        target: Raw,
        target_offset: u64,
        bytes: u64,
    },
    Fill {
        target: Raw,
        offset: u64,
        bytes: u64,
        pattern: u32,
    },
    /// Makes what was written visible to host reads after the submission.
    HostBarrier,
    /// Makes what the host has written visible to transfers, even what it wrote while the submission waited for it.
    HostWrites,
    /// Makes the next submission wait for a value of another timeline. If there are several, only the last counts.
    Wait {
        semaphore: Raw,
        value: u64,
    },
    ResetQueries {
        pool: Raw,
        count: u32,
    },
    Timestamp {
        pool: Raw,
        query: u32,
    },
    /// Copies the pool's first `count` timestamps to the buffer, once they are available.
    CopyQueries {
        pool: Raw,
        count: u32,
        target: Raw,
        offset: u64,
    },
    /// Submits what came before, then `more` unless it is 0, and signals `value`.
    Submit {
        /// A value that the device waits for first; 0 for none.
        wait: u64,
        value: u64,
        more: Raw,
        host_barrier: bool,
    },
}

/// Commands being written. Keeps its memory when emptied.
#[derive(Debug, Default)]
pub struct Commands {
    words: Vec<u64>,
    /// Pipelines that dispatches name from here on, by slot. If a slot held another pipeline, commands in this list
    /// mean only the new one.
    pub programs: Vec<(u32, Program)>,
}

impl Commands {
    pub fn with_capacity(words: usize) -> Self {
        Self {
            words: Vec::with_capacity(words),
            programs: Vec::new(),
        }
    }

    #[inline]
    pub fn words(&self) -> usize {
        self.words.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub fn clear(&mut self) {
        self.words.clear();
        self.programs.clear();
    }

    /// `bindings`: [`BINDING_WORDS`] words for each.
    #[inline]
    pub fn dispatch(
        &mut self,
        barrier: Stages,
        program: u32,
        groups: [u32; 3],
        bindings: &[u64],
        push: &[u8],
    ) {
        let count = bindings.len() / BINDING_WORDS;
        debug_assert!(count < 256 && push.len() < 1 << 16);
        let header = DISPATCH
            | u64::from(barrier.bits()) << STAGES_SHIFT
            | (count as u64) << BINDINGS_SHIFT
            | (push.len() as u64) << PUSH_SHIFT
            | u64::from(program) << PROGRAM_SHIFT;
        let [x, y, z] = groups.map(u64::from);
        self.words.extend_from_slice(&[header, x | y << 32, z]);
        self.words.extend_from_slice(bindings);
        let (words, rest) = push.as_chunks::<8>();
        self.words
            .extend(words.iter().map(|word| u64::from_ne_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.words.push(u64::from_ne_bytes(word));
        }
    }

    pub fn barrier(&mut self, stages: Stages) {
        let stages = u64::from(stages.bits()) << STAGES_SHIFT;
        self.words.push(BARRIER | stages);
    }

    pub fn copy(&mut self, source: Raw, source_at: u64, target: Raw, target_at: u64, bytes: u64) {
        self.words
            .extend_from_slice(&[COPY, source, source_at, target, target_at, bytes]);
    }

    pub fn fill(&mut self, target: Raw, offset: u64, bytes: u64, pattern: u32) {
        let header = FILL | u64::from(pattern) << 32;
        self.words
            .extend_from_slice(&[header, target, offset, bytes]);
    }

    pub fn host_barrier(&mut self) {
        self.words.push(HOST_BARRIER);
    }

    pub fn host_writes(&mut self) {
        self.words.push(HOST_WRITES);
    }

    pub fn wait(&mut self, semaphore: Raw, value: u64) {
        self.words.extend_from_slice(&[WAIT, semaphore, value]);
    }

    pub fn reset_queries(&mut self, pool: Raw, count: u32) {
        let header = RESET_QUERIES | u64::from(count) << 32;
        self.words.extend_from_slice(&[header, pool]);
    }

    pub fn timestamp(&mut self, pool: Raw, query: u32) {
        let header = TIMESTAMP | u64::from(query) << 32;
        self.words.extend_from_slice(&[header, pool]);
    }

    pub fn copy_queries(&mut self, pool: Raw, count: u32, target: Raw, offset: u64) {
        let header = COPY_QUERIES | u64::from(count) << 32;
        self.words
            .extend_from_slice(&[header, pool, target, offset]);
    }

    pub fn submit(&mut self, wait: u64, value: u64, more: Raw, host_barrier: bool) {
        let header = SUBMIT | u64::from(host_barrier) << STAGES_SHIFT;
        self.words.extend_from_slice(&[header, wait, value, more]);
    }

    /// The commands in the order they were written, each with its words.
    pub fn iter(&self) -> Iter<'_> {
        Iter { rest: &self.words }
    }
}

/// Reads commands from words that were kept elsewhere.
pub fn read(words: &[u64]) -> Iter<'_> {
    Iter { rest: words }
}

/// Reads commands back.
pub struct Iter<'a> {
    rest: &'a [u64],
}

impl<'a> Iter<'a> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u64; N]> {
        let (words, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*words)
    }

    #[inline]
    fn slice(&mut self, words: usize) -> Option<&'a [u64]> {
        let (slice, rest) = self.rest.split_at_checked(words)?;
        self.rest = rest;
        Some(slice)
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (Command<'a>, &'a [u64]);

    #[inline]
    fn next(&mut self) -> Option<(Command<'a>, &'a [u64])> {
        let before = self.rest;
        let command = self.command()?;
        Some((command, &before[..before.len() - self.rest.len()]))
    }
}

impl<'a> Iter<'a> {
    #[inline]
    fn command(&mut self) -> Option<Command<'a>> {
        let [header] = self.take()?;
        let stages = Stages::from_bits((header >> STAGES_SHIFT) as u8 & 0xf);
        let high = (header >> 32) as u32;
        Some(match header & ((1 << KIND_BITS) - 1) {
            DISPATCH => {
                let bindings = (header >> BINDINGS_SHIFT) as usize & 0xff;
                let push_bytes = (header >> PUSH_SHIFT) as usize & 0xffff;
                let [xy, z] = self.take()?;
                Command::Dispatch {
                    barrier: stages,
                    program: (header >> PROGRAM_SHIFT) as u32,
                    groups: [xy as u32, (xy >> 32) as u32, z as u32],
                    bindings: self.slice(bindings * BINDING_WORDS)?,
                    push: self.slice(push_bytes.div_ceil(8))?,
                    push_bytes,
                }
            }
            BARRIER => Command::Barrier(stages),
            COPY => {
                let [source, source_offset, target, target_offset, bytes] = self.take()?;
                Command::Copy {
                    source,
                    source_offset,
                    target,
                    target_offset,
                    bytes,
                }
            }
            FILL => {
                let [target, offset, bytes] = self.take()?;
                Command::Fill {
                    target,
                    offset,
                    bytes,
                    pattern: high,
                }
            }
            HOST_BARRIER => Command::HostBarrier,
            HOST_WRITES => Command::HostWrites,
            WAIT => {
                let [semaphore, value] = self.take()?;
                Command::Wait { semaphore, value }
            }
            RESET_QUERIES => {
                let [pool] = self.take()?;
                Command::ResetQueries { pool, count: high }
            }
            TIMESTAMP => {
                let [pool] = self.take()?;
                Command::Timestamp { pool, query: high }
            }
            COPY_QUERIES => {
                let [pool, target, offset] = self.take()?;
                Command::CopyQueries {
                    pool,
                    count: high,
                    target,
                    offset,
                }
            }
            _ => {
                let [wait, value, more] = self.take()?;
                Command::Submit {
                    wait,
                    value,
                    more,
                    host_barrier: !stages.is_empty(),
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Written {
        Dispatch(u8, u32, [u32; 3], Vec<[u64; 3]>, Vec<u8>),
        Barrier(u8),
        Copy([u64; 5]),
        Fill([u64; 3], u32),
        HostBarrier,
        HostWrites,
        Wait(u64, u64),
        ResetQueries(u64, u32),
        Timestamp(u64, u32),
        CopyQueries([u64; 3], u32),
        Submit(u64, u64, u64, bool),
    }

    fn written() -> impl Strategy<Value = Written> {
        let binding = any::<[u64; 3]>();
        prop_oneof![
            4 => (
                0u8..4,
                any::<u32>(),
                any::<[u32; 3]>(),
                prop::collection::vec(binding, 0..=32),
                prop::collection::vec(any::<u8>(), 0..=256),
            )
                .prop_map(|(b, p, g, list, push)| Written::Dispatch(b, p, g, list, push)),
            1 => (0u8..4).prop_map(Written::Barrier),
            1 => any::<[u64; 5]>().prop_map(Written::Copy),
            1 => any::<([u64; 3], u32)>().prop_map(|(t, p)| Written::Fill(t, p)),
            1 => Just(Written::HostBarrier),
            1 => Just(Written::HostWrites),
            1 => any::<(u64, u64)>().prop_map(|(s, v)| Written::Wait(s, v)),
            1 => any::<(u64, u32)>().prop_map(|(p, c)| Written::ResetQueries(p, c)),
            1 => any::<(u64, u32)>().prop_map(|(p, q)| Written::Timestamp(p, q)),
            1 => any::<([u64; 3], u32)>().prop_map(|(w, c)| Written::CopyQueries(w, c)),
            1 => any::<(u64, u64, u64, bool)>()
                .prop_map(|(w, v, m, h)| Written::Submit(w, v, m, h)),
        ]
    }

    proptest! {
        /// What is written is read back, in order, whatever stands before and behind it.
        #[test]
        fn commands_come_back_as_they_were_written(list in prop::collection::vec(written(), 0..40)) {
            let mut commands = Commands::default();
            for item in &list {
                match item {
                    Written::Dispatch(barrier, program, groups, bindings, push) => {
                        let barrier = Stages::from_bits(*barrier);
                        commands.dispatch(barrier, *program, *groups, &bindings.concat(), push);
                    }
                    Written::Barrier(stages) => commands.barrier(Stages::from_bits(*stages)),
                    Written::Copy([a, b, c, d, e]) => commands.copy(*a, *b, *c, *d, *e),
                    Written::Fill([target, at, bytes], p) => commands.fill(*target, *at, *bytes, *p),
                    Written::HostBarrier => commands.host_barrier(),
                    Written::HostWrites => commands.host_writes(),
                    Written::Wait(semaphore, value) => commands.wait(*semaphore, *value),
                    Written::ResetQueries(pool, count) => commands.reset_queries(*pool, *count),
                    Written::Timestamp(pool, query) => commands.timestamp(*pool, *query),
                    Written::CopyQueries([pool, target, at], count) => {
                        commands.copy_queries(*pool, *count, *target, *at);
                    }
                    Written::Submit(wait, value, more, host) => {
                        commands.submit(*wait, *value, *more, *host);
                    }
                }
            }
            let words: Vec<u64> = commands.iter().flat_map(|(_, words)| words).copied().collect();
            prop_assert_eq!(&words, &commands.words);
            let mut read = read(&words);
            for item in &list {
                let (command, _) = read.next().expect("a command");
                match (item, command) {
                    (
                        Written::Dispatch(b, p, g, list, bytes),
                        Command::Dispatch { barrier, program, groups, bindings, push, push_bytes },
                    ) => {
                        prop_assert_eq!((barrier, program, groups), (Stages::from_bits(*b), *p, *g));
                        prop_assert_eq!(bindings, list.concat());
                        let all: Vec<u8> = push.iter().flat_map(|w| w.to_ne_bytes()).collect();
                        prop_assert_eq!(&all[..push_bytes], bytes.as_slice());
                    }
                    (Written::Barrier(s), Command::Barrier(stages)) => {
                        prop_assert_eq!(stages, Stages::from_bits(*s));
                    }
                    (
                        Written::Copy(all),
                        Command::Copy { source, source_offset, target, target_offset, bytes },
                    ) => prop_assert_eq!(*all, [source, source_offset, target, target_offset, bytes]),
                    (Written::Fill(t, p), Command::Fill { target, offset, bytes, pattern }) => {
                        prop_assert_eq!((*t, *p), ([target, offset, bytes], pattern));
                    }
                    (Written::HostBarrier, Command::HostBarrier) => {}
                    (Written::HostWrites, Command::HostWrites) => {}
                    (Written::Wait(s, v), Command::Wait { semaphore, value }) => {
                        prop_assert_eq!((*s, *v), (semaphore, value));
                    }
                    (Written::ResetQueries(p, c), Command::ResetQueries { pool, count }) => {
                        prop_assert_eq!((*p, *c), (pool, count));
                    }
                    (Written::Timestamp(p, q), Command::Timestamp { pool, query }) => {
                        prop_assert_eq!((*p, *q), (pool, query));
                    }
                    (
                        Written::CopyQueries(w, c),
                        Command::CopyQueries { pool, count, target, offset },
                    ) => prop_assert_eq!((*w, *c), ([pool, target, offset], count)),
                    (
                        Written::Submit(w, v, m, h),
                        Command::Submit { wait, value, more, host_barrier },
                    ) => prop_assert_eq!((*w, *v, *m, *h), (wait, value, more, host_barrier)),
                    (item, command) => prop_assert!(false, "{:?} came back as {:?}", item, command),
                }
            }
            prop_assert!(read.next().is_none());
        }
    }
}
