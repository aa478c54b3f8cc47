//! Read results without a copy: ArrayBuffers over mapped readback memory, taken back once JS has let
//! go of them.
//!
//! The runtime tells when it has freed such memory, but Node does so from its event loop, which a
//! trainer may not turn for several steps. So a weak reference to each ArrayBuffer is kept as well,
//! and looked at when the next read wants a block.
//!
//! V8 counts the bytes of such ArrayBuffers and collects garbage whenever they have grown by 64 MiB: in
//! a trainer that reads a gigabyte a step, a dozen times a step, within the reads. The blocks are ours
//! to bound (at most 2 GiB are out), so V8 is told of them only when a collection is due: once much is
//! out, or a large result makes V8 collect anyway. A program that trains wants them in bursts, one a step,
//! and lets go of those of one just before the next: so V8 is told in a long wait that comes about where a
//! burst is expected, and marks what is alive while the device works.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use napi::sys;
use parking_lot::Mutex;

use super::convert::{clear_exception, undefined};
use crate::error::Result;
use crate::staging::Lease;
use crate::timeline::Timeline;

/// Below this a copy is cheaper than the bookkeeping.
pub const MIN_BYTES: usize = 16 << 10;
/// Weak references looked at by one read while they are found alive, and in all.
const LOOKS: usize = 2;
const MOST_LOOKS: usize = 64;

/// Results of this size and more are large.
const LARGE: i64 = 1 << 20;
/// Large results that come after more waits than this are the first of a burst, of one a step maybe…
const APART: u32 = 8;
/// …and so many waits before the next is expected, those of the last one are likely to be dead…
const SHORTLY: u32 = 4;
/// …and if a wait is as long as this, there is time to collect them.
const PATIENCE: Duration = Duration::from_millis(1);
/// V8 is given time so often at most, while it has more to do than this takes.
const MOST_STEPS: usize = 16;
const STEP: Duration = Duration::from_micros(100);
/// V8 marks for a while when its count is 64 MiB above its lowest.
const NUDGE: i64 = 65 << 20;

/// Bytes of lent memory that V8 is not told of until they are as many…
const HIDDEN: i64 = 1536 << 20;
/// …or so many, and a burst of reads is expected, or this much is out: beyond 2 GiB reads are copied.
const FEW: i64 = 512 << 20;
const MUCH: u64 = 1536 << 20;
/// What V8's count grows by as a result larger than this is made may make it collect: room is made
/// before, or, if so much is hidden that a collection pays, V8 is told of all of it.
const NEEDS_ROOM: i64 = 32 << 20;
const PAYS: i64 = 256 << 20;
/// Results larger than this are never hidden: V8 collects once its count is 64 MiB above its lowest.
const MOST_HIDDEN: i64 = 62 << 20;

/// A lease that goes back once: by the runtime's word or by the weak reference, whichever is first.
type Shared = Arc<Mutex<Option<Lease>>>;

/// What this environment's runtime allows.
#[derive(Clone, Copy, Default)]
struct Runtime {
    known: bool,
    /// It has refused memory that is not its own (Electron does).
    refuses: bool,
    /// A dead ArrayBuffer means dead memory: in Node, where memory of others cannot be transferred.
    weak: bool,
    /// It has `ArrayBuffer.prototype.transfer`, which would move the memory to another ArrayBuffer.
    transfer: bool,
}

thread_local! {
    /// Bytes hidden since V8 was last told; none before the first.
    static UNTOLD: Cell<Option<i64>> = const { Cell::new(None) };
    static RHYTHM: Cell<Rhythm> = const { Cell::new(Rhythm::NEW) };
    static LENT: RefCell<VecDeque<(sys::napi_ref, Shared)>> = const { RefCell::new(VecDeque::new()) };
    static RUNTIME: Cell<Runtime> = const {
        Cell::new(Runtime { known: false, refuses: false, weak: false, transfer: false })
    };
}

/// When large results are wanted.
#[derive(Clone, Copy)]
struct Rhythm {
    /// Waits since the last one.
    waits: u32,
    /// Waits before the last burst of them; none yet if 0.
    usual: u32,
    /// Bytes lent since V8 was last given time.
    lent: i64,
}

impl Rhythm {
    const NEW: Self = Self {
        waits: 0,
        usual: 0,
        lent: 0,
    };

    fn lent(&mut self, bytes: i64) {
        self.lent += bytes;
        if bytes < LARGE {
            return;
        }
        if self.waits > APART {
            self.usual = self.waits;
        }
        self.waits = 0;
    }

    /// Notes a wait; whether results of the last burst are likely to be dead, and worth a collection.
    fn waits(&mut self) -> bool {
        self.waits += 1;
        self.lent > FEW && (self.waits..=self.waits + SHORTLY).contains(&self.usual)
    }
}

unsafe extern "C" fn release(_: sys::napi_env, _: *mut c_void, hint: *mut c_void) {
    // SAFETY: `hint` is the box that `lend` leaked for exactly this call.
    let shared = unsafe { Box::from_raw(hint.cast::<Shared>()) };
    drop(shared.lock().take());
}

fn property(env: sys::napi_env, object: sys::napi_value, name: &std::ffi::CStr) -> sys::napi_value {
    let mut value = ptr::null_mut();
    // SAFETY: `object` is of `env`; the name is nul-terminated.
    if unsafe { sys::napi_get_named_property(env, object, name.as_ptr(), &mut value) }
        != sys::Status::napi_ok
    {
        clear_exception(env);
        return undefined(env);
    }
    value
}

fn is_undefined(env: sys::napi_env, value: sys::napi_value) -> bool {
    let mut kind = 0;
    // SAFETY: the value is of `env`.
    unsafe { sys::napi_typeof(env, value, &mut kind) };
    kind == sys::ValueType::napi_undefined
}

fn runtime(env: sys::napi_env) -> Runtime {
    let known = RUNTIME.with(Cell::get);
    if known.known {
        return known;
    }
    let mut global = ptr::null_mut();
    // SAFETY: `env` is live.
    unsafe { sys::napi_get_global(env, &mut global) };
    let prototype = property(env, property(env, global, c"ArrayBuffer"), c"prototype");
    let runtime = Runtime {
        known: true,
        refuses: false,
        weak: is_undefined(env, property(env, global, c"Bun")),
        transfer: !is_undefined(env, property(env, prototype, c"transfer")),
    };
    RUNTIME.with(|r| r.set(runtime));
    runtime
}

/// The lease's bytes as an ArrayBuffer, or the lease back where the runtime refuses.
#[allow(clippy::result_large_err)] // the lease goes back to its owner; boxing it would allocate on every read
pub fn lend(env: sys::napi_env, lease: Lease) -> std::result::Result<sys::napi_value, Lease> {
    let runtime = runtime(env);
    if runtime.refuses {
        return Err(lease);
    }
    let (data, len, out) = (lease.pointer(), lease.len(), lease.leased());
    let shared: Shared = Arc::new(Mutex::new(Some(lease)));
    let boxed = Box::into_raw(Box::new(Arc::clone(&shared)));
    let mut buffer = ptr::null_mut();
    let room = match runtime.weak {
        true => make_room(env, len as i64),
        false => 0,
    };
    // SAFETY: the bytes stay mapped until the lease is dropped: by `release`, or by `reclaim` once
    // the ArrayBuffer is gone.
    let status = unsafe {
        sys::napi_create_external_arraybuffer(
            env,
            data.cast(),
            len,
            Some(release),
            boxed.cast(),
            &mut buffer,
        )
    };
    if status != sys::Status::napi_ok {
        clear_exception(env);
        give_room_back(env, room);
        RUNTIME.with(|r| {
            r.set(Runtime {
                refuses: true,
                ..runtime
            });
        });
        // SAFETY: the runtime refused, so `release` will not run and the box is ours again.
        drop(unsafe { Box::from_raw(boxed) });
        let lease = shared.lock().take();
        return lease.map_or(Ok(buffer), Err);
    }
    if runtime.weak {
        update(|rhythm| rhythm.lent(len as i64));
        hide(env, len as i64, room, out);
        if runtime.transfer {
            keep_in_place(env, buffer);
        }
        let mut reference = ptr::null_mut();
        // SAFETY: `buffer` is an object of `env`. A count of 0 makes the reference weak.
        if unsafe { sys::napi_create_reference(env, buffer, 0, &mut reference) }
            == sys::Status::napi_ok
        {
            LENT.with(|l| l.borrow_mut().push_back((reference, shared)));
        }
    }
    Ok(buffer)
}

fn is_detached(env: sys::napi_env, buffer: sys::napi_value) -> bool {
    let mut detached = false;
    // SAFETY: the value is of `env`. If it fails the answer stays.
    unsafe { sys::napi_is_detached_arraybuffer(env, buffer, &mut detached) };
    detached
}

fn adjust(env: sys::napi_env, bytes: i64) {
    let mut total = 0;
    // SAFETY: `env` is live.
    unsafe { sys::napi_adjust_external_memory(env, bytes, &mut total) };
}

/// Bytes hidden since V8 was last told.
fn untold(env: sys::napi_env) -> i64 {
    UNTOLD.get().unwrap_or_else(|| {
        // Freed results are subtracted before they are told of: the count must stay positive.
        adjust(env, HIDDEN);
        UNTOLD.set(Some(0));
        0
    })
}

/// Takes so much out of V8's count that a large result fits; the bytes.
fn make_room(env: sys::napi_env, bytes: i64) -> i64 {
    let untold = untold(env);
    if bytes <= NEEDS_ROOM || bytes > MOST_HIDDEN || untold > PAYS {
        return 0;
    }
    adjust(env, -bytes);
    UNTOLD.set(Some(untold + bytes));
    bytes
}

/// Undoes [`make_room`] for a result that was not made.
fn give_room_back(env: sys::napi_env, room: i64) {
    adjust(env, room);
    UNTOLD.set(UNTOLD.get().map(|untold| untold - room));
}

/// Puts all that was taken out of V8's count back in.
fn tell(env: sys::napi_env, untold: i64) {
    adjust(env, untold);
    UNTOLD.set(Some(0));
}

fn update<T>(change: impl FnOnce(&mut Rhythm) -> T) -> T {
    let mut rhythm = RHYTHM.get();
    let result = change(&mut rhythm);
    RHYTHM.set(rhythm);
    result
}

/// Notes a wait that was none.
pub fn passed() {
    update(Rhythm::waits);
}

/// Waits for a timeline value. If that takes a while and a collection pays, V8 is told of what was
/// hidden and given time to mark what is alive; it frees the rest when JS goes on.
pub fn wait(env: sys::napi_env, timeline: &Timeline, value: u64) -> Result<()> {
    if update(Rhythm::waits) && !timeline.reached_within(value, PATIENCE)? {
        update(|rhythm| rhythm.lent = 0);
        tell(env, untold(env));
        for _ in 0..MOST_STEPS {
            let start = Instant::now();
            adjust(env, NUDGE);
            adjust(env, -NUDGE);
            if start.elapsed() < STEP || timeline.completed()? >= value {
                break;
            }
        }
    }
    timeline.wait(value)
}

/// Takes the bytes of a result back out of V8's count, or puts all that was taken out back in. `room`: what
/// was taken out before for this one; `out`: bytes that JS holds.
fn hide(env: sys::napi_env, bytes: i64, room: i64, out: u64) {
    let untold = untold(env);
    let due = untold + bytes > HIDDEN || (untold > FEW && out > MUCH);
    if due || (bytes > NEEDS_ROOM && room == 0) {
        tell(env, untold);
        return;
    }
    adjust(env, -bytes);
    UNTOLD.set(Some(untold + bytes));
}

/// Hides the methods that would move the memory to an ArrayBuffer that nobody watches.
fn keep_in_place(env: sys::napi_env, buffer: sys::napi_value) {
    let hidden = |name: &'static std::ffi::CStr| sys::napi_property_descriptor {
        utf8name: name.as_ptr(),
        name: ptr::null_mut(),
        method: None,
        getter: None,
        setter: None,
        value: undefined(env),
        attributes: sys::PropertyAttributes::default,
        data: ptr::null_mut(),
    };
    let list = [hidden(c"transfer"), hidden(c"transferToFixedLength")];
    // SAFETY: `buffer` is of `env`; names and values live until the call returns.
    unsafe { sys::napi_define_properties(env, buffer, list.len(), list.as_ptr()) };
}

/// Takes back what JS has let go of, oldest first. Looks at a few results, at more while they are dead.
pub fn reclaim(env: sys::napi_env) {
    LENT.with(|lent| {
        let mut lent = lent.borrow_mut();
        let mut alive = 0;
        for _ in 0..MOST_LOOKS.min(lent.len()) {
            let Some((reference, shared)) = lent.pop_front() else {
                return;
            };
            let mut value = ptr::null_mut();
            // SAFETY: the reference is of this thread's environment.
            unsafe { sys::napi_get_reference_value(env, reference, &mut value) };
            if value.is_null() {
                // SAFETY: as above; it is not used again.
                unsafe { sys::napi_delete_reference(env, reference) };
                drop(shared.lock().take());
                continue;
            }
            if is_detached(env, value) {
                // Its memory has moved to another ArrayBuffer (byte streams do that): the runtime
                // alone knows when that one goes, and calls `release`.
                // SAFETY: as above; it is not used again.
                unsafe { sys::napi_delete_reference(env, reference) };
                continue;
            }
            lent.push_back((reference, shared));
            alive += 1;
            if alive == LOOKS {
                return;
            }
        }
    });
}

/// The environment ends: the runtime itself gives back what is still out.
pub fn forget() {
    LENT.with(|l| l.borrow_mut().clear());
    RUNTIME.with(|r| r.set(Runtime::default()));
    UNTOLD.set(None);
    RHYTHM.set(Rhythm::NEW);
}
