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
//! out, or a large result makes V8 collect anyway. A trainer that reads all its gradients has one a step.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use napi::sys;
use parking_lot::Mutex;

use super::convert::{clear_exception, undefined};
use crate::staging::Lease;

/// Below this a copy is cheaper than the bookkeeping.
pub const MIN_BYTES: usize = 16 << 10;
/// Weak references looked at by one read while they are found alive, and in all.
const LOOKS: usize = 2;
const MOST_LOOKS: usize = 64;

/// Bytes of lent memory that V8 is not told of until they are as many…
const HIDDEN: i64 = 1536 << 20;
/// …or so many, and this much is out: beyond 2 GiB reads are copied.
const FEW: i64 = 512 << 20;
const MUCH: u64 = 1280 << 20;
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
    static LENT: RefCell<VecDeque<(sys::napi_ref, Shared)>> = const { RefCell::new(VecDeque::new()) };
    static RUNTIME: Cell<Runtime> = const {
        Cell::new(Runtime { known: false, refuses: false, weak: false, transfer: false })
    };
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
pub fn lend(env: sys::napi_env, lease: Lease) -> Result<sys::napi_value, Lease> {
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

/// Takes the bytes of a result back out of V8's count, or puts all that was taken out back in. `room`: what
/// was taken out before for this one; `out`: bytes that JS holds.
fn hide(env: sys::napi_env, bytes: i64, room: i64, out: u64) {
    let untold = untold(env);
    let due = untold + bytes > HIDDEN || (untold > FEW && out > MUCH);
    if due || (bytes > NEEDS_ROOM && room == 0) {
        adjust(env, untold);
        UNTOLD.set(Some(0));
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
}
