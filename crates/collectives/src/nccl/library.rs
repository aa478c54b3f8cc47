//! NCCL's library, found at run time: its version and its calls.
//!
//! Names, numbers and layouts are those of `nccl.h` 2.27.5. The configuration of a communicator carries its own size and
//! version: here it is the one of 2.14, the first with communicators that do not block, for which every later NCCL fills in
//! the rest.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::Library;

use super::bind::{functions, reason};
use super::cuda::{Address, Stream};
use crate::call::Call;
use crate::failure::{Cause, Failure};
use crate::mpi::library::{Missing, Scope, open};

/// `ncclUniqueId`: what the ranks of a communicator have in common.
const ID_BYTES: usize = 128;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct UniqueId(pub [u8; ID_BYTES]);

impl UniqueId {
    /// In hexadecimal, as ranks tell each other.
    pub fn to_text(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// None for what is not `ID_BYTES` bytes in hexadecimal.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut id = [0; ID_BYTES];
        for (i, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
        }
        (text.len() == 2 * ID_BYTES).then_some(Self(id))
    }
}

type Status = c_int;
type Comm = *mut c_void;
type Data = *const c_void;
type Raw = *mut c_void;

const IN_PROGRESS: Status = 7;
const UINT8: c_int = 1;
const FLOAT32: c_int = 7;
const SUM: c_int = 0;

/// The first that has communicators that do not block.
const FIRST: c_int = 21400;

/// `ncclConfig_v21400`.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}
const _: () = assert!(size_of::<Config>() == 24 || size_of::<usize>() != 8);

functions! { Calls:
    version = "ncclGetVersion" (*mut c_int);
    unique_id = "ncclGetUniqueId" (*mut UniqueId);
    init = "ncclCommInitRankConfig" (*mut Comm, c_int, UniqueId, c_int, *mut Config);
    async_error = "ncclCommGetAsyncError" (Comm, *mut Status);
    finalize = "ncclCommFinalize" (Comm);
    destroy = "ncclCommDestroy" (Comm);
    abort = "ncclCommAbort" (Comm);
    all_reduce = "ncclAllReduce" (Data, Raw, usize, c_int, c_int, Comm, Raw);
    reduce_scatter = "ncclReduceScatter" (Data, Raw, usize, c_int, c_int, Comm, Raw);
    all_gather = "ncclAllGather" (Data, Raw, usize, c_int, Comm, Raw);
    group_start = "ncclGroupStart" ();
    group_end = "ncclGroupEnd" ();
    send = "ncclSend" (Data, usize, c_int, c_int, Comm, Raw);
    receive = "ncclRecv" (Raw, usize, c_int, c_int, Comm, Raw);
    broadcast = "ncclBroadcast" (Data, Raw, usize, c_int, c_int, Comm, Raw);
}

type Text = unsafe extern "C" fn(Status) -> *const c_char;
type LastError = unsafe extern "C" fn(Comm) -> *const c_char;

/// NCCL, loaded; it stays so.
pub struct Nccl {
    calls: Calls,
    error_string: Text,
    last_error: LastError,
    /// The name or path under which it was loaded.
    pub library: String,
    /// As in `2.27.5`.
    pub version: String,
}

fn missing(library: &str, reason: impl Into<String>) -> Missing {
    Missing {
        library: library.to_owned(),
        reason: reason.into(),
    }
}

fn load(name: &str) -> Result<Nccl, Missing> {
    if name.is_empty() || name.contains('\0') {
        return Err(missing(name, "is no name of a library"));
    }
    let library = open(name, Scope::Local).map_err(|e| missing(name, reason(&e)))?;
    let library: &'static Library = Box::leak(Box::new(library));
    let calls = Calls::bind(library).map_err(|reason| missing(name, reason))?;
    // SAFETY: both types are those of the header.
    let (error_string, last_error) = unsafe {
        (
            crate::mpi::library::symbol(library, "ncclGetErrorString"),
            crate::mpi::library::symbol(library, "ncclGetLastError"),
        )
    };
    let absent = |_| missing(name, "has no texts for errors");
    let mut nccl = Nccl {
        calls,
        error_string: error_string.map_err(absent)?,
        last_error: last_error.map_err(absent)?,
        library: name.to_owned(),
        version: String::new(),
    };
    let mut version = 0;
    let call = &nccl.calls.version;
    // SAFETY: the number is written to.
    let status = unsafe { (call.call)(&raw mut version) };
    nccl.check(call.name, status, ptr::null_mut())
        .map_err(|failure| missing(name, failure.message))?;
    nccl.version = match version {
        // 2.8 and before counted hundreds where later ones count ten thousands.
        0..10_000 => format!("2.{}.{}", version / 100 % 10, version % 100),
        _ => format!(
            "{}.{}.{}",
            version / 10_000,
            version / 100 % 100,
            version % 100
        ),
    };
    if version < FIRST {
        let reason = format!("is NCCL {}, and 2.14 is the first that does", nccl.version);
        return Err(missing(name, reason));
    }
    Ok(nccl)
}

/// The first of these that is an NCCL, or what is wrong with each.
pub fn find(names: &[String]) -> Result<&'static Nccl, Failure> {
    let mut text = "no NCCL loads; `pip install nvidia-nccl-cu13` gets one, and HELIOS_NCCL_LIBRARY names it. Tried:"
        .to_owned();
    for name in names {
        match load(name) {
            Ok(nccl) => return Ok(Box::leak(Box::new(nccl))),
            Err(Missing { library, reason }) => text += &format!("\n  {library}: {reason}"),
        }
    }
    Err(Failure::new(Cause::NoEngine, text, None))
}

/// What a library says of itself: its version.
pub fn probe(name: &str) -> Result<String, Missing> {
    load(name).map(|nccl| nccl.version)
}

impl Nccl {
    fn check(&self, call: &str, status: Status, comm: Comm) -> Result<(), Failure> {
        if status == 0 || status == IN_PROGRESS {
            return Ok(());
        }
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            // SAFETY: a text of the library's, which ends with a zero.
            false => unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .trim()
                .to_owned(),
        };
        // SAFETY: as declared. The communicator may be null.
        let (what, last) = unsafe {
            (
                text((self.error_string)(status)),
                text((self.last_error)(comm)),
            )
        };
        let mut message = format!("{call} failed: {what} ({status})");
        if !last.is_empty() {
            message += &format!(": {last}");
        }
        Err(Failure::engine(message))
    }

    /// What rank 0 gives all others.
    pub fn unique_id(&self) -> Result<UniqueId, Failure> {
        let mut id = UniqueId([0; ID_BYTES]);
        let call = &self.calls.unique_id;
        // SAFETY: the identifier is written to.
        let status = unsafe { (call.call)(&raw mut id) };
        self.check(call.name, status, ptr::null_mut())?;
        Ok(id)
    }
}

/// All ranks together. Every call may return before it is through: [`Communicator::ready`] says when the next may come.
pub struct Communicator {
    nccl: &'static Nccl,
    raw: Comm,
}

impl Communicator {
    /// Begins to bring the ranks together, on the device of this thread's context.
    pub fn begin(nccl: &'static Nccl, rank: u32, size: u32, id: UniqueId) -> Result<Self, Failure> {
        let mut config = Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: FIRST as c_uint,
            blocking: 0,
        };
        let mut raw = ptr::null_mut();
        let call = &nccl.calls.init;
        let (rank, size) = (rank as c_int, size as c_int);
        // SAFETY: as declared; the configuration is read before the call returns.
        let status = unsafe { (call.call)(&raw mut raw, size, id, rank, &raw mut config) };
        let comm = Self { nccl, raw };
        nccl.check(call.name, status, raw)?;
        Ok(comm)
    }

    /// Whether the last call is through. Also finds what has gone wrong since.
    pub fn ready(&self) -> Result<bool, Failure> {
        let mut state = 0;
        let call = &self.nccl.calls.async_error;
        // SAFETY: the communicator is live, and the number is written to.
        let status = unsafe { (call.call)(self.raw, &raw mut state) };
        self.nccl.check(call.name, status, self.raw)?;
        self.nccl.check("NCCL", state, self.raw)?;
        Ok(state != IN_PROGRESS)
    }

    /// Gives the stream a collective on the memory at `data`: in place, or from its first half to its second.
    ///
    /// # Safety
    /// The memory is as long as the call's range, and nobody else uses it until the stream is done.
    pub unsafe fn collective(
        &self,
        call: &Call,
        data: Address,
        [rank, size]: [u32; 2],
        stream: &Stream,
    ) -> Result<(), Failure> {
        use crate::call::Kind;
        let calls = &self.nccl.calls;
        let at = |address: Address| ptr::without_provenance_mut::<c_void>(address as usize);
        let shard = call.bytes() / u64::from(size);
        let (all, own) = (at(data), at(data + shard * u64::from(rank)));
        let (elements, bytes) = (call.elements as usize, call.bytes() as usize);
        let (comm, stream) = (self.raw, stream.raw);
        // SAFETY: as declared, on memory that the caller vouches for; both handles are live.
        let (name, status) = unsafe {
            match call.kind {
                Kind::AllReduce => {
                    let f = &calls.all_reduce;
                    (
                        f.name,
                        (f.call)(all, all, elements, FLOAT32, SUM, comm, stream),
                    )
                }
                Kind::ReduceScatter => {
                    let f = &calls.reduce_scatter;
                    let count = elements / size as usize;
                    (
                        f.name,
                        (f.call)(all, own, count, FLOAT32, SUM, comm, stream),
                    )
                }
                Kind::AllGather => {
                    let f = &calls.all_gather;
                    (
                        f.name,
                        (f.call)(own, all, shard as usize, UINT8, comm, stream),
                    )
                }
                Kind::Broadcast => {
                    let f = &calls.broadcast;
                    let root = call.root as c_int;
                    (f.name, (f.call)(all, all, bytes, UINT8, root, comm, stream))
                }
                Kind::AllToAll => {
                    let half = call.bytes() / 2;
                    let shard = half / u64::from(size);
                    let ends = (0..size).map(|peer| {
                        let from = data + shard * u64::from(peer);
                        (at(from), at(from + half), peer as c_int)
                    });
                    return self.exchange(ends, shard as usize, stream);
                }
                Kind::Leave => (calls.finalize.name, (calls.finalize.call)(comm)),
            }
        };
        self.nccl.check(name, status, comm)
    }

    /// Sends each peer a shard and gets one from each, as one operation.
    ///
    /// # Safety
    /// As [`Self::collective`]: `ends` has where a shard is sent from and received at, by peer.
    unsafe fn exchange(
        &self,
        ends: impl Iterator<Item = (Raw, Raw, c_int)>,
        bytes: usize,
        stream: Raw,
    ) -> Result<(), Failure> {
        let calls = &self.nccl.calls;
        let check = |name, status| self.nccl.check(name, status, self.raw);
        let (start, end) = (&calls.group_start, &calls.group_end);
        // SAFETY: as declared.
        check(start.name, unsafe { (start.call)() })?;
        let mut given = Ok(());
        for (from, to, peer) in ends {
            // SAFETY: as declared, on memory that the caller vouches for; both handles are live.
            let (sent, received) = unsafe {
                (
                    (calls.send.call)(from, bytes, UINT8, peer, self.raw, stream),
                    (calls.receive.call)(to, bytes, UINT8, peer, self.raw, stream),
                )
            };
            given = given
                .and(check(calls.send.name, sent))
                .and(check(calls.receive.name, received));
        }
        // SAFETY: as declared. Also where one of them has failed: the group is the thread's, and must not stay open.
        let ended = check(end.name, unsafe { (end.call)() });
        given.and(ended)
    }

    /// Frees it once `ready` has said so after [`Kind::Leave`](crate::Kind::Leave).
    pub fn destroy(self) -> Result<(), Failure> {
        let call = &self.nccl.calls.destroy;
        // SAFETY: the communicator is live, and not used any more.
        let status = unsafe { (call.call)(self.raw) };
        let checked = self.nccl.check(call.name, status, ptr::null_mut());
        std::mem::forget(self);
        checked
    }
}

impl Drop for Communicator {
    /// Ends what is under way, here.
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the communicator is live, and not used any more. There is nobody to tell of a failure.
            unsafe { (self.nccl.calls.abort.call)(self.raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named_with_the_loaders_words() {
        let names = ["libhelios-none.so.2".to_owned(), String::new()];
        let failure = find(&names).err().map(|f| (f.cause, f.message));
        let (cause, message) = failure.expect("nothing loads");
        assert_eq!(cause, Cause::NoEngine);
        assert!(message.contains("libhelios-none.so.2: "), "{message}");
    }

    #[test]
    fn an_identifier_comes_back_from_its_text() {
        let id = UniqueId(std::array::from_fn(|i| (i * 37) as u8));
        let text = id.to_text();
        assert_eq!(UniqueId::from_text(&text).map(|id| id.0), Some(id.0));
        for wrong in [
            &text[2..],
            &format!("{text}00"),
            &text.replace("25", "2g"),
            "é",
        ] {
            assert!(UniqueId::from_text(wrong).is_none(), "{wrong}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_that_is_no_nccl_is_refused() {
        let missing = probe("libc.so.6").expect_err("no NCCL");
        assert!(missing.reason.contains("has no nccl"), "{}", missing.reason);
    }
}
