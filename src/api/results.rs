//! Results of reads as ArrayBuffers.
//!
//! A large result is an external ArrayBuffer over the block that the device copied into: no copy is made. An
//! ArrayBuffer can hand its memory to another one (byte streams and `transfer()` do). So one that is detached, or was
//! collected unobserved, tells us nothing about the memory. A block is returned in one of two ways:
//!
//! - The runtime calls the finalizer of that memory. Node does this only from its event loop, which a program that
//!   trains may not reach for dozens of steps.
//! - So in Node the addon keeps each result alive until the loop turns. If half of the bound ([`host_memory::results`])
//!   is reached earlier, [`Held::collect`] checks them while no JavaScript can run. It leaves detached ones to their
//!   finalizers, makes the references to the others weak, and has the runtime collect garbage at once. Whichever died
//!   then was not detached, so its memory died with it.
//!
//! Beyond the bound, results are copied into memory of the runtime's own. Workers always copy: when one ends, Node
//! calls all its finalizers, although the memory may have been transferred to another thread. The main thread ends
//! last.
//!
//! V8 collects garbage whenever the external memory that it knows of has grown by 64 MiB: a dozen times a step if a
//! step reads a gigabyte. So these ArrayBuffers are reported to V8 together, when the loop turns or the bound is
//! reached.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use napi::sys;
use parking_lot::Mutex;

use super::convert::Arg;
use super::state;
use super::unwind::guard;
use super::values::{clear_exception, ending, made, refused, runs, string};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::memory::host_memory;
use crate::memory::staging::Lease;

/// Below this size a copy is cheaper than a finalizer.
const MIN_EXTERNAL: usize = 16 << 10;
/// V8 collects garbage as soon as a larger ArrayBuffer is made, whatever we report afterwards.
const MAX_UNREPORTED: u64 = 62 << 20;
/// More than any limit of V8's: reporting this much makes it collect at once.
const PRESSURE: i64 = 1 << 40;
/// How many collections an allocation that failed may need: V8 frees a collection's memory concurrently and finishes at
/// the latest when the next collection begins.
const COLLECTIONS: usize = 2;

/// Bytes of the blocks that JavaScript holds, on all devices.
static OUTSTANDING: AtomicU64 = AtomicU64::new(0);

/// Whether this thread's runtime allows external ArrayBuffers.
#[derive(Clone, Copy, PartialEq)]
enum External {
    /// In a worker, or in a runtime that has refused one (Electron does).
    Never,
    Allowed,
    /// Allowed, and the runtime is V8: bytes not reported to it yet (none before the first result).
    Counted(Option<u64>),
}

thread_local! {
    static EXTERNAL: Cell<External> = const { Cell::new(External::Never) };
    /// In Node: results since the event loop last turned.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
    /// The runtime's own `ArrayBuffer`, even if the program replaces the global one later.
    static CONSTRUCTOR: Cell<Option<sys::napi_ref>> = const { Cell::new(None) };
}

/// V8's heap limit; negative elsewhere.
const HEAP_LIMIT: &str = "typeof Bun === 'undefined' ?
  process.getBuiltinModule('node:v8').getHeapStatistics().heap_size_limit : -1";
/// Whether the runtime is Node, which calls finalizers only from its event loop.
const IS_NODE: &str = "typeof Bun === 'undefined' && typeof Deno === 'undefined' ? 1 : 0";

/// A block that JavaScript holds. The first of the finalizer and [`Held::collect`] takes it.
type Shared = Arc<Mutex<Option<Lease>>>;

fn take(shared: &Shared) {
    if let Some(lease) = shared.lock().take() {
        let _before = OUTSTANDING.fetch_sub(lease.capacity(), Ordering::AcqRel);
    }
}

/// Results kept alive until the event loop turns, so that none is collected unobserved before that.
struct Held {
    results: Vec<(sys::napi_ref, Shared)>,
    /// Runs [`turned`] from the event loop.
    wake: sys::napi_threadsafe_function,
    woken: bool,
    /// Bytes of results since a collection that found little.
    since: Option<u64>,
}

impl Held {
    fn new(env: sys::napi_env) -> Option<Self> {
        let mut wake = ptr::null_mut();
        let name = string(env, "helios results").ok()?;
        // SAFETY: `env` is live; without a JS function of its own, `turned` alone is called. It does not keep the
        // process alive, and ends with the environment.
        let made = unsafe {
            sys::napi_create_threadsafe_function(
                env,
                ptr::null_mut(),
                ptr::null_mut(),
                name,
                0,
                1,
                ptr::null_mut(),
                None,
                ptr::null_mut(),
                Some(turned),
                &mut wake,
            ) == sys::Status::napi_ok
                && sys::napi_unref_threadsafe_function(env, wake) == sys::Status::napi_ok
        };
        made.then(|| Self {
            results: Vec::new(),
            wake,
            woken: false,
            since: None,
        })
    }

    /// Keeps the ArrayBuffer alive. If that fails, only the finalizer returns its block.
    fn hold(&mut self, env: sys::napi_env, buffer: sys::napi_value, shared: Shared) {
        let mut reference = ptr::null_mut();
        // SAFETY: `buffer` is a value of `env`.
        if unsafe { sys::napi_create_reference(env, buffer, 1, &mut reference) }
            != sys::Status::napi_ok
        {
            return clear_exception(env);
        }
        self.results.push((reference, shared));
        if !self.woken {
            let mode = sys::ThreadsafeFunctionCallMode::nonblocking;
            // SAFETY: the function lives as long as the environment.
            let status =
                unsafe { sys::napi_call_threadsafe_function(self.wake, ptr::null_mut(), mode) };
            self.woken = status == sys::Status::napi_ok;
        }
    }

    /// Takes back the blocks that JavaScript no longer holds. Returns their bytes.
    fn collect(&mut self, env: sys::napi_env) -> u64 {
        let before = OUTSTANDING.load(Ordering::Acquire);
        // No JavaScript runs from here to the collection, so what is attached now is still attached when it dies.
        scoped(env, || {
            self.results.retain(|&(reference, _)| {
                let mut count = 0;
                // SAFETY: the reference is of `env`; weak once its count is 0.
                unsafe {
                    let value = value_of(env, reference);
                    let attached = matches!(value, Ok(Some(value)) if owns(env, value));
                    if !attached {
                        drop_reference(env, reference);
                        return false;
                    }
                    sys::napi_reference_unref(env, reference, &mut count) == sys::Status::napi_ok
                }
            });
        });
        collect_garbage(env);
        scoped(env, || {
            self.results.retain(|(reference, shared)| {
                let mut count = 0;
                // SAFETY: as above.
                unsafe {
                    if value_of(env, *reference) == Ok(None) {
                        drop_reference(env, *reference);
                        take(shared);
                        return false;
                    }
                    sys::napi_reference_ref(env, *reference, &mut count) == sys::Status::napi_ok
                }
            });
        });
        before.saturating_sub(OUTSTANDING.load(Ordering::Acquire))
    }

    /// Makes room for a result of `bytes` bytes if half of the bound is reached and a collection is likely to free
    /// enough.
    fn make_room(&mut self, env: sys::napi_env, bytes: u64) {
        let bound = host_memory::results();
        if OUTSTANDING.load(Ordering::Acquire) + bytes <= bound / 2 || self.results.is_empty() {
            return;
        }
        if let Some(since) = self.since.as_mut().filter(|since| **since < bound / 4) {
            *since += bytes;
            return;
        }
        let found = self.collect(env);
        self.since = (found < bound / 4).then_some(0);
    }
}

/// Runs `body` in a handle scope of its own: the JS values it makes do not outlive it.
pub(super) fn scoped(env: sys::napi_env, body: impl FnOnce()) {
    let mut scope = ptr::null_mut();
    // SAFETY: `env` is live. Without a scope the values live until the call ends, and nothing is collected.
    unsafe {
        let opened = sys::napi_open_handle_scope(env, &mut scope) == sys::Status::napi_ok;
        body();
        if opened {
            // Opened above. If it cannot be closed, the scope ends with the call and nothing is collected until then.
            let _ = sys::napi_close_handle_scope(env, scope);
        }
    }
}

/// The value of a reference; none if it was collected, an error if the runtime cannot say.
///
/// # Safety
/// The reference must be of `env` and not deleted.
pub(super) unsafe fn value_of(
    env: sys::napi_env,
    reference: sys::napi_ref,
) -> std::result::Result<Option<sys::napi_value>, sys::napi_status> {
    let mut value = ptr::null_mut();
    // SAFETY: see above.
    match unsafe { sys::napi_get_reference_value(env, reference, &mut value) } {
        sys::Status::napi_ok => Ok((!value.is_null()).then_some(value)),
        status => Err(status),
    }
}

/// Whether the ArrayBuffer is known to still have its memory.
fn owns(env: sys::napi_env, buffer: sys::napi_value) -> bool {
    let mut detached = true;
    // SAFETY: the value is of `env`.
    let status = unsafe { sys::napi_is_detached_arraybuffer(env, buffer, &mut detached) };
    status == sys::Status::napi_ok && !detached
}

/// # Safety
/// The reference must be of `env`, and must not be used again.
pub(super) unsafe fn drop_reference(env: sys::napi_env, reference: sys::napi_ref) {
    // SAFETY: see above. One that could not be deleted goes with the environment.
    let _ = unsafe { sys::napi_delete_reference(env, reference) };
}

/// The event loop has turned and runs finalizers, so garbage is left to the runtime again.
unsafe extern "C" fn turned(
    env: sys::napi_env,
    _: sys::napi_value,
    _: *mut c_void,
    _: *mut c_void,
) {
    // A null environment is ending, and its references end with it.
    if env.is_null() {
        return;
    }
    guard((), || {
        HELD.with_borrow_mut(|held| {
            let Some(held) = held else { return };
            held.woken = false;
            held.since = None;
            for (reference, _) in held.results.drain(..) {
                // SAFETY: the reference is of `env`.
                unsafe { drop_reference(env, reference) };
            }
        });
        if unreported() > host_memory::results() / 3 {
            report(env);
        }
    });
}

/// Whether this is the process's first thread, which never runs a worker.
pub fn on_main_thread() -> bool {
    #[cfg(target_os = "linux")]
    // SAFETY: questions without arguments.
    return unsafe { libc::gettid() == libc::getpid() };
    #[cfg(target_os = "macos")]
    // SAFETY: as above.
    return unsafe { libc::pthread_main_np() == 1 };
    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    false
}

/// Called when this environment loads the addon.
pub fn enter(env: sys::napi_env) {
    let (mut global, mut constructor) = (ptr::null_mut(), ptr::null_mut());
    let mut reference = ptr::null_mut();
    // SAFETY: `env` is live, the values are of it, and the name is nul-terminated.
    let found = unsafe {
        sys::napi_get_global(env, &mut global) == sys::Status::napi_ok
            && sys::napi_get_named_property(env, global, c"ArrayBuffer".as_ptr(), &mut constructor)
                == sys::Status::napi_ok
            && sys::napi_create_reference(env, constructor, 1, &mut reference)
                == sys::Status::napi_ok
    };
    CONSTRUCTOR.set(found.then_some(reference));
    let external = match on_main_thread() {
        false => External::Never,
        true => match script_number(env, HEAP_LIMIT) {
            Some(limit) if limit > 0.0 => {
                host_memory::heap_limit(limit as u64);
                External::Counted(None)
            }
            _ => External::Allowed,
        },
    };
    EXTERNAL.set(external);
    let is_node =
        matches!(external, External::Counted(_)) && script_number(env, IS_NODE) == Some(1.0);
    // If the addon is loaded a second time here, keep what is held until the loop turns.
    if is_node && HELD.with_borrow(Option::is_none) {
        HELD.set(Held::new(env));
    }
}

/// The environment ends; its references end with it.
pub fn leave() {
    HELD.set(None);
    CONSTRUCTOR.set(None);
    EXTERNAL.set(External::Never);
}

fn script_number(env: sys::napi_env, source: &str) -> Option<f64> {
    let source = string(env, source).ok()?;
    // SAFETY: `env` is live and the script a string of it.
    let run = |value| unsafe { sys::napi_run_script(env, source, value) };
    match made(env, "napi_run_script", run) {
        Ok(value) => Arg::of(env, value).float("").ok(),
        Err(_) => {
            clear_exception(env);
            None
        }
    }
}

/// Counts `bytes` more as held by JavaScript; false, and not counted, if that exceeds the bound.
fn hold(bytes: u64) -> bool {
    let fits = OUTSTANDING.fetch_add(bytes, Ordering::AcqRel) + bytes <= host_memory::results();
    if !fits {
        let _before = OUTSTANDING.fetch_sub(bytes, Ordering::AcqRel);
    }
    fits
}

/// The finalizer, on whichever thread the runtime calls it: Deno collects on several.
unsafe extern "C" fn release(_: sys::napi_env, _: *mut c_void, hint: *mut c_void) {
    guard((), || {
        // SAFETY: `hint` is the box that `external` gave with the memory, whose finalizer runs once.
        let shared = unsafe { Box::from_raw(hint.cast::<Shared>()) };
        take(&shared);
    });
}

/// An ArrayBuffer with the bytes that the device copied into the lease.
pub fn array_buffer_of(env: sys::napi_env, lease: Lease) -> Result<sys::napi_value> {
    let lease = match lease.len() >= MIN_EXTERNAL && EXTERNAL.get() != External::Never {
        true => match external(env, lease)? {
            Made::External(buffer) => return Ok(buffer),
            Made::Nothing(lease) => lease,
        },
        false => lease,
    };
    let (buffer, data) = array_buffer(env, lease.len())?;
    if !lease.is_empty() {
        // SAFETY: the lease holds as many bytes, written by the device; the ArrayBuffer is new.
        unsafe { ptr::copy_nonoverlapping(lease.pointer(), data, lease.len()) };
    }
    Ok(buffer)
}

enum Made {
    External(sys::napi_value),
    /// The bound is reached or the runtime refuses: returns the lease.
    Nothing(Lease),
}

fn external(env: sys::napi_env, lease: Lease) -> Result<Made> {
    let bytes = lease.capacity();
    HELD.with_borrow_mut(|held| {
        if let Some(held) = held {
            held.make_room(env, bytes);
        }
    });
    if !hold(bytes) {
        return Ok(Made::Nothing(lease));
    }
    let (data, len) = (lease.pointer(), lease.len());
    let shared: Shared = Arc::new(Mutex::new(Some(lease)));
    let hint = Box::into_raw(Box::new(Arc::clone(&shared)));
    let mut buffer = ptr::null_mut();
    // SAFETY: the bytes stay mapped until the lease is dropped, which keeps the block, its memory and its device,
    // also beyond `destroy()`: by `release`, or by `collect` once no ArrayBuffer has them.
    let status = unsafe {
        sys::napi_create_external_arraybuffer(
            env,
            data.cast(),
            len,
            Some(release),
            hint.cast(),
            &mut buffer,
        )
    };
    match status {
        sys::Status::napi_ok => {
            count(env, len as u64);
            HELD.with_borrow_mut(|held| {
                if let Some(held) = held {
                    held.hold(env, buffer, shared);
                }
            });
            Ok(Made::External(buffer))
        }
        sys::Status::napi_no_external_buffers_allowed => {
            clear_exception(env);
            EXTERNAL.set(External::Never);
            // SAFETY: the runtime made nothing that has a finalizer, so the box is ours again.
            drop(unsafe { Box::from_raw(hint) });
            let lease = shared.lock().take();
            let _before = OUTSTANDING.fetch_sub(bytes, Ordering::AcqRel);
            lease.map_or_else(
                || Err(Error::Internal("a lease is gone".to_owned())),
                |lease| Ok(Made::Nothing(lease)),
            )
        }
        // Whether the runtime will call the finalizer is unknown, so the block is left to it.
        status => Err(refused(env, "napi_create_external_arraybuffer", status)),
    }
}

/// Stops V8 from collecting at every 64 MiB of results. V8 adds an ArrayBuffer's bytes when it makes one, and subtracts
/// them when it frees the memory. We subtract them at once, and add them again together with those of other results:
/// when the event loop turns; before a collection; for an ArrayBuffer so large that V8 collects anyway; and, where
/// finalizers do not wait for the event loop, when they reach a third of the bound.
fn count(env: sys::napi_env, bytes: u64) {
    let External::Counted(unreported) = EXTERNAL.get() else {
        return;
    };
    // V8's count is unsigned: bytes freed while unreported must not take it below 0.
    let Some(unreported) =
        unreported.or_else(|| adjust(env, host_memory::results() as i64).then_some(0))
    else {
        return;
    };
    EXTERNAL.set(External::Counted(Some(unreported)));
    let waits = HELD.with_borrow(Option::is_some);
    let due = !waits && unreported + bytes > host_memory::results() / 3;
    if bytes > MAX_UNREPORTED || due {
        report(env);
    } else if adjust(env, -(bytes as i64)) {
        EXTERNAL.set(External::Counted(Some(unreported + bytes)));
    }
}

/// Bytes that V8 does not know of.
fn unreported() -> u64 {
    match EXTERNAL.get() {
        External::Counted(Some(bytes)) => bytes,
        _ => 0,
    }
}

/// Adds back to V8's count what we subtracted.
fn report(env: sys::napi_env) {
    if adjust(env, unreported() as i64)
        && let External::Counted(Some(_)) = EXTERNAL.get()
    {
        EXTERNAL.set(External::Counted(Some(0)));
    }
}

/// Adjusts the external memory that the runtime knows of; whether it accepted.
fn adjust(env: sys::napi_env, bytes: i64) -> bool {
    let mut total = 0;
    // SAFETY: `env` is live.
    unsafe { sys::napi_adjust_external_memory(env, bytes, &mut total) == sys::Status::napi_ok }
}

/// Runs `body`. If it runs out of memory, the device returns idle memory, the runtime collects garbage, and `body` runs
/// again. Do not call with the device locked.
pub fn collecting<T>(env: sys::napi_env, mut body: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..COLLECTIONS {
        match body() {
            Err(error @ Error::OutOfMemory { .. }) => {
                // If the shortage was final for the device, this is its error. Other errors do not matter here: there
                // may be no device any more.
                if let Err(Error::DeviceLost(_)) = state::with(Context::relieve) {
                    return Err(error);
                }
                collect(env);
            }
            other => return other,
        }
    }
    body()
}

/// Has the runtime collect garbage, and takes back the blocks that died.
pub(super) fn collect(env: sys::napi_env) {
    let held = HELD.with_borrow_mut(|held| held.as_mut().map(|held| held.collect(env)));
    if held.is_none() {
        collect_garbage(env);
    }
}

/// Reports to V8 all results and more than its limit, which makes it collect at once.
fn collect_garbage(env: sys::napi_env) {
    if adjust(env, unreported() as i64 + PRESSURE) {
        // It accepted the opposite a moment ago; if it does not now, V8 collects once more than it has to.
        let _ = adjust(env, -PRESSURE);
        if let External::Counted(Some(_)) = EXTERNAL.get() {
            EXTERNAL.set(External::Counted(Some(0)));
        }
    }
}

/// A new ArrayBuffer of `bytes` bytes in the runtime's own memory, and the address of its bytes. Do not call with the
/// device locked.
pub fn array_buffer(env: sys::napi_env, bytes: usize) -> Result<(sys::napi_value, *mut u8)> {
    collecting(env, || allocate(env, bytes))
}

fn allocate(env: sys::napi_env, bytes: usize) -> Result<(sys::napi_value, *mut u8)> {
    let (mut value, mut data) = (ptr::null_mut(), ptr::null_mut());
    let status = match CONSTRUCTOR.get() {
        // Out of memory, V8 ends the process in `napi_create_arraybuffer`; the constructor throws.
        Some(constructor) if bytes >= MIN_EXTERNAL => {
            construct(env, constructor, bytes, &mut value)
        }
        // SAFETY: `env` is live.
        _ => unsafe { sys::napi_create_arraybuffer(env, bytes, &mut data, &mut value) },
    };
    if status != sys::Status::napi_ok {
        clear_exception(env);
        if !runs(env) {
            return Err(ending());
        }
        return Err(Error::OutOfMemory {
            what: "ArrayBuffer",
            bytes: bytes as u64,
            space: "host",
            hint: String::new(),
        });
    }
    let mut len = 0;
    // SAFETY: `value` is what was just made; if it is not an ArrayBuffer, the status says so.
    let status = unsafe { sys::napi_get_arraybuffer_info(env, value, &mut data, &mut len) };
    if status != sys::Status::napi_ok || len != bytes {
        return Err(refused(env, "napi_get_arraybuffer_info", status));
    }
    Ok((value, data.cast()))
}

fn construct(
    env: sys::napi_env,
    constructor: sys::napi_ref,
    bytes: usize,
    value: &mut sys::napi_value,
) -> sys::napi_status {
    let (mut function, mut length) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: `env` is live, the reference strong and of it, and so are the values.
    unsafe {
        match sys::napi_get_reference_value(env, constructor, &mut function) {
            sys::Status::napi_ok => {}
            status => return status,
        }
        match sys::napi_create_double(env, bytes as f64, &mut length) {
            sys::Status::napi_ok => {}
            status => return status,
        }
        sys::napi_new_instance(env, function, 1, &length, value)
    }
}

/// A Float32Array over a whole ArrayBuffer of `bytes` bytes.
pub fn floats(
    env: sys::napi_env,
    buffer: sys::napi_value,
    bytes: usize,
) -> Result<sys::napi_value> {
    view(env, sys::TypedarrayType::float32_array, bytes / 4, buffer)
}

/// A typed array of `length` elements from the ArrayBuffer's start on.
pub fn view(
    env: sys::napi_env,
    kind: sys::napi_typedarray_type,
    length: usize,
    buffer: sys::napi_value,
) -> Result<sys::napi_value> {
    // SAFETY: `buffer` is a value of `env`.
    let make = |value| unsafe { sys::napi_create_typedarray(env, kind, length, buffer, 0, value) };
    made(env, "napi_create_typedarray", make)
}
