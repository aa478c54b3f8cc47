//! Reads and waits as promises, and reads into the caller's memory.
//!
//! A promise is settled on its own JS thread, where the completion thread leaves word in a mailbox.
//! The mailbox keeps the event loop alive exactly while promises are pending.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use napi::{Env, Status, ValueType, sys};
use napi_derive::napi;
use parking_lot::Mutex;

use super::convert::{
    Arg, Object, Out, clear_exception, runs, set, string, typed_array, undefined,
};
use super::lend;
use super::raise::{build, call, stack};
use super::resources::{account, hand_over};
use super::state;
use crate::completion::{self, Done};
use crate::context::{Context, Read};
use crate::error::{Error, Result};
use crate::staging::Lease;

/// The end of one promise's work: nothing or a block of bytes.
type Outcome = Result<Option<Lease>>;

struct Mail {
    /// Wakes the JS thread; gone when its environment ends.
    wake: Option<sys::napi_threadsafe_function>,
    arrived: Vec<(u64, Outcome)>,
}

// SAFETY: a threadsafe function is called from any thread; the lock keeps it from ending meanwhile.
unsafe impl Send for Mail {}

type Mailbox = Arc<Mutex<Mail>>;

fn deliver(mailbox: &Mailbox, id: u64, outcome: Outcome) {
    let mut mail = mailbox.lock();
    let Some(wake) = mail.wake else {
        return;
    };
    mail.arrived.push((id, outcome));
    if mail.arrived.len() == 1 {
        // SAFETY: the function lives while `wake` is there.
        unsafe {
            sys::napi_call_threadsafe_function(
                wake,
                ptr::null_mut(),
                sys::ThreadsafeFunctionCallMode::nonblocking,
            )
        };
    }
}

struct Pending {
    /// The call's name.
    name: &'static str,
    deferred: sys::napi_deferred,
    listening: Option<Listening>,
    /// JS stack of the call, where it is asked for: making one takes longer than the call.
    stack: Option<String>,
}

/// Strong references to a signal and to the listener on it.
struct Listening {
    signal: sys::napi_ref,
    listener: sys::napi_ref,
}

struct Environment {
    mailbox: Mailbox,
    wake: sys::napi_threadsafe_function,
    pending: HashMap<u64, Pending>,
    promises: u64,
}

thread_local! {
    static ENVIRONMENT: RefCell<Option<Environment>> = const { RefCell::new(None) };
}

fn ok(status: sys::napi_status, what: &str) -> napi::Result<()> {
    if status == sys::Status::napi_ok {
        return Ok(());
    }
    Err(napi::Error::new(Status::from(status), what.to_owned()))
}

impl Environment {
    fn new(env: &Env) -> napi::Result<Self> {
        let mut wake = ptr::null_mut();
        // SAFETY: `env` is live. Without a JS function of its own, `settle_arrived` alone is called.
        let status = unsafe {
            sys::napi_create_threadsafe_function(
                env.raw(),
                ptr::null_mut(),
                ptr::null_mut(),
                string(env.raw(), "helios completion"),
                0,
                1,
                ptr::null_mut(),
                None,
                ptr::null_mut(),
                Some(settle_arrived),
                &mut wake,
            )
        };
        ok(status, "no threadsafe function")?;
        // SAFETY: just created, on this thread. Nothing is pending yet.
        unsafe { sys::napi_unref_threadsafe_function(env.raw(), wake) };
        // Hooks run last in, first out: this one before the runtime's own, which ends the function.
        env.add_env_cleanup_hook((), |()| leave())?;
        Ok(Self {
            mailbox: Arc::new(Mutex::new(Mail {
                wake: Some(wake),
                arrived: Vec::new(),
            })),
            wake,
            pending: HashMap::new(),
            promises: 0,
        })
    }
}

/// The environment ends: its promises are never settled, and what arrives for them goes back.
fn leave() {
    let Some(environment) = ENVIRONMENT.with(|e| e.borrow_mut().take()) else {
        return;
    };
    let arrived = {
        let mut mail = environment.mailbox.lock();
        if let Some(wake) = mail.wake.take() {
            // SAFETY: the function lives until released here; nobody calls it without the lock.
            unsafe {
                sys::napi_release_threadsafe_function(
                    wake,
                    sys::ThreadsafeFunctionReleaseMode::abort,
                )
            };
        }
        std::mem::take(&mut mail.arrived)
    };
    drop(arrived);
}

/// Opens a promise: its id and the JS object.
fn open(env: &Env, name: &'static str) -> napi::Result<(u64, sys::napi_value)> {
    ENVIRONMENT.with(|slot| {
        let mut slot = slot.borrow_mut();
        let environment = match &mut *slot {
            Some(environment) => environment,
            none => none.insert(Environment::new(env)?),
        };
        let (mut deferred, mut promise) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: `env` is live, here and below.
        let status = unsafe { sys::napi_create_promise(env.raw(), &mut deferred, &mut promise) };
        ok(status, "no promise")?;
        if environment.pending.is_empty() {
            // SAFETY: on the function's own thread.
            unsafe { sys::napi_ref_threadsafe_function(env.raw(), environment.wake) };
        }
        environment.promises += 1;
        let id = environment.promises;
        let pending = Pending {
            name,
            deferred,
            listening: None,
            stack: state::stacks().then(|| stack(env.raw())),
        };
        environment.pending.insert(id, pending);
        Ok((id, promise))
    })
}

/// Takes a promise that is to be settled now; none if it already was.
fn close(env: sys::napi_env, id: u64) -> Option<Pending> {
    ENVIRONMENT.with(|slot| {
        let mut slot = slot.borrow_mut();
        let environment = slot.as_mut()?;
        let pending = environment.pending.remove(&id)?;
        if environment.pending.is_empty() {
            // SAFETY: on the function's own thread.
            unsafe { sys::napi_unref_threadsafe_function(env, environment.wake) };
        }
        Some(pending)
    })
}

fn referenced(env: sys::napi_env, reference: sys::napi_ref) -> sys::napi_value {
    let mut value = ptr::null_mut();
    // SAFETY: a strong reference of this environment.
    unsafe { sys::napi_get_reference_value(env, reference, &mut value) };
    value
}

/// A property of an object of ours or the caller's; undefined if its getter throws.
fn property(env: sys::napi_env, object: sys::napi_value, name: &CStr) -> sys::napi_value {
    let mut value = ptr::null_mut();
    // SAFETY: `object` is of `env`; the name is nul-terminated.
    let status = unsafe { sys::napi_get_named_property(env, object, name.as_ptr(), &mut value) };
    if status != sys::Status::napi_ok {
        clear_exception(env);
        return undefined(env);
    }
    value
}

/// Calls a method of the signal; whether that went well.
fn invoke(
    env: sys::napi_env,
    object: sys::napi_value,
    name: &CStr,
    arguments: &[sys::napi_value],
) -> bool {
    let method = property(env, object, name);
    // SAFETY: all values are of `env`; a value that is no function leaves a status.
    let status = unsafe {
        sys::napi_call_function(
            env,
            object,
            method,
            arguments.len(),
            arguments.as_ptr(),
            ptr::null_mut(),
        )
    };
    if status != sys::Status::napi_ok {
        clear_exception(env);
    }
    status == sys::Status::napi_ok
}

impl Pending {
    /// Takes the listener off the signal.
    fn stop_listening(&mut self, env: sys::napi_env) {
        if let Some(Listening { signal, listener }) = self.listening.take() {
            let arguments = [string(env, "abort"), referenced(env, listener)];
            invoke(
                env,
                referenced(env, signal),
                c"removeEventListener",
                &arguments,
            );
            // SAFETY: references of this environment, not used again.
            unsafe {
                sys::napi_delete_reference(env, signal);
                sys::napi_delete_reference(env, listener);
            }
        }
    }

    fn resolve(mut self, env: sys::napi_env, value: sys::napi_value) {
        self.stop_listening(env);
        // SAFETY: the deferred is settled here alone, since it left the table.
        unsafe { sys::napi_resolve_deferred(env, self.deferred, value) };
    }

    fn reject(mut self, env: sys::napi_env, reason: sys::napi_value) {
        self.stop_listening(env);
        // SAFETY: as above.
        unsafe { sys::napi_reject_deferred(env, self.deferred, reason) };
    }

    fn settle(self, env: sys::napi_env, outcome: Outcome) {
        let outcome = outcome.and_then(|lease| {
            // Promises are settled after `destroy()`, too.
            match state::with(Context::found_nan) {
                Err(error @ Error::Nan { .. }) => Err(error),
                _ => Ok(lease),
            }
        });
        let value = outcome.and_then(|lease| match lease {
            Some(lease) => floats(env, lease),
            None => Ok(undefined(env)),
        });
        match value {
            Ok(value) => self.resolve(env, value),
            Err(error) => {
                let reason = build(env, self.name, &error, "");
                if let Some(stack) = &self.stack {
                    // The frames of the call, below the error's own first line.
                    let frames = stack.find('\n').map_or("", |at| &stack[at..]);
                    let own = stack_of(env, reason);
                    let first = own.lines().next().unwrap_or_default();
                    set(
                        env,
                        reason,
                        "stack",
                        string(env, &format!("{first}{frames}")),
                    );
                }
                self.reject(env, reason);
            }
        }
    }
}

fn stack_of(env: sys::napi_env, error: sys::napi_value) -> String {
    let text = property(env, error, c"stack");
    Arg::of(env, text).string("stack").unwrap_or_default()
}

fn floats(env: sys::napi_env, lease: Lease) -> Result<sys::napi_value> {
    let length = lease.len() / 4;
    let buffer = hand_over(env, lease)?;
    let kind = sys::TypedarrayType::float32_array;
    Ok(typed_array(env, kind, length, buffer))
}

/// Settles what has arrived, on the JS thread.
unsafe extern "C" fn settle_arrived(
    env: sys::napi_env,
    _: sys::napi_value,
    _: *mut c_void,
    _: *mut c_void,
) {
    if env.is_null() {
        // The environment ends.
        return;
    }
    let arrived = ENVIRONMENT.with(|e| {
        let environment = e.borrow();
        environment
            .as_ref()
            .map_or_else(Vec::new, |e| std::mem::take(&mut e.mailbox.lock().arrived))
    });
    // A worker that never came back to its event loop may leave thousands.
    if !runs(env) {
        return;
    }
    for (id, outcome) in arrived {
        let Some(pending) = close(env, id) else {
            // Given up: the block goes back.
            continue;
        };
        let mut scope = ptr::null_mut();
        // SAFETY: `env` is live; the scope is closed below, values of it are not kept.
        unsafe { sys::napi_open_handle_scope(env, &mut scope) };
        pending.settle(env, outcome);
        // SAFETY: opened above.
        unsafe { sys::napi_close_handle_scope(env, scope) };
    }
}

/// The reason that a signal gives.
fn reason(env: sys::napi_env, signal: sys::napi_value, name: &str) -> sys::napi_value {
    let reason = property(env, signal, c"reason");
    let mut kind = 0;
    // SAFETY: `reason` is of `env`.
    unsafe { sys::napi_typeof(env, reason, &mut kind) };
    if kind == sys::ValueType::napi_undefined {
        return build(env, name, &Error::Aborted("aborted".to_owned()), "");
    }
    reason
}

/// The listener: `data` is the promise's id.
unsafe extern "C" fn on_abort(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    let mut data = ptr::null_mut();
    // SAFETY: the runtime calls this with its `info`; only the data is asked for.
    unsafe {
        sys::napi_get_cb_info(
            env,
            info,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            &mut data,
        )
    };
    if let Some(pending) = close(env, data as u64) {
        let reason = match &pending.listening {
            Some(listening) => reason(env, referenced(env, listening.signal), pending.name),
            // A signal that fires while it is being listened to.
            None => build(env, pending.name, &Error::Aborted("aborted".to_owned()), ""),
        };
        pending.reject(env, reason);
    }
    ptr::null_mut()
}

const SIGNAL: &str = "options.signal";

/// The signal of the options, checked, and whether it is already aborted.
fn signal_of(options: Arg) -> Result<Option<(Arg, bool)>> {
    const EXPECTED: &str = "an AbortSignal";
    if options.missing() {
        return Ok(None);
    }
    if options.kind() != ValueType::Object {
        return Err(options.wrong("options", "an object"));
    }
    let signal = options.property("signal")?;
    if signal.missing() {
        return Ok(None);
    }
    let wrong = || signal.wrong(SIGNAL, EXPECTED);
    if signal.kind() != ValueType::Object {
        return Err(wrong());
    }
    let aborted = signal.property("aborted").map_err(|_| wrong())?;
    let listen = signal.property("addEventListener").map_err(|_| wrong())?;
    if aborted.kind() != ValueType::Boolean || listen.kind() != ValueType::Function {
        return Err(wrong());
    }
    Ok(Some((signal, aborted.flag_or(SIGNAL, false)?)))
}

/// From now on the signal rejects the promise.
fn listen(env: sys::napi_env, id: u64, signal: Arg) -> Result<()> {
    let failed = || signal.wrong(SIGNAL, "an AbortSignal that can be listened to");
    let mut listener = ptr::null_mut();
    let (mut signal_ref, mut listener_ref) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: `env` and the signal are live; the id travels in place of a pointer and is none.
    let status = unsafe {
        sys::napi_create_function(
            env,
            ptr::null(),
            0,
            Some(on_abort),
            id as *mut c_void,
            &mut listener,
        )
    };
    if status != sys::Status::napi_ok {
        return Err(failed());
    }
    // SAFETY: objects of `env`; the references are deleted when the promise is settled.
    unsafe {
        sys::napi_create_reference(env, signal.raw(), 1, &mut signal_ref);
        sys::napi_create_reference(env, listener, 1, &mut listener_ref);
    }
    ENVIRONMENT.with(|slot| {
        if let Some(pending) = slot
            .borrow_mut()
            .as_mut()
            .and_then(|e| e.pending.get_mut(&id))
        {
            pending.listening = Some(Listening {
                signal: signal_ref,
                listener: listener_ref,
            });
        }
    });
    let once = Object::new(env).boolean("once", true).raw;
    let arguments = [string(env, "abort"), listener, once];
    if !invoke(env, signal.raw(), c"addEventListener", &arguments) {
        return Err(failed());
    }
    Ok(())
}

/// Where the result of a promise's work goes.
struct Ticket {
    mailbox: Mailbox,
    id: u64,
}

impl Ticket {
    /// The ticket of a promise that is still pending.
    fn of(id: u64) -> Option<Self> {
        ENVIRONMENT.with(|slot| {
            let slot = slot.borrow();
            let environment = slot.as_ref().filter(|e| e.pending.contains_key(&id))?;
            Some(Self {
                mailbox: Arc::clone(&environment.mailbox),
                id,
            })
        })
    }

    fn done(self) -> Done {
        Box::new(move |outcome| deliver(&self.mailbox, self.id, outcome))
    }
}

/// The promise of the call `name`: `parse` checks the arguments, then `start` begins the work, unless
/// the signal says no. Whatever goes wrong rejects the promise.
fn promise<A>(
    env: &Env,
    name: &'static str,
    options: Arg,
    parse: impl FnOnce() -> Result<A>,
    start: impl FnOnce(A, Ticket) -> Result<()>,
) -> napi::Result<Out> {
    let raw = env.raw();
    let (id, promise) = open(env, name)?;
    let started = call(env, name, || {
        let arguments = parse()?;
        match signal_of(options)? {
            Some((signal, true)) => {
                if let Some(pending) = close(raw, id) {
                    let reason = reason(raw, signal.raw(), name);
                    pending.reject(raw, reason);
                }
            }
            Some((signal, false)) => listen(raw, id, signal)?,
            None => {}
        }
        match Ticket::of(id) {
            Some(ticket) => start(arguments, ticket),
            None => Ok(()),
        }
    });
    if started.is_err() {
        let mut exception = ptr::null_mut();
        // SAFETY: `env` is live; `call` has thrown.
        unsafe { sys::napi_get_and_clear_last_exception(raw, &mut exception) };
        if let Some(pending) = close(raw, id) {
            pending.reject(raw, exception);
        }
    }
    Ok(Out(promise))
}

/// Reads `byteLength` bytes from `byteOffset` on (without a length: to the end) as floats, as they are
/// at the place of this call among the others: what is called later does not show. Offset and length
/// are multiples of 4. No thread is blocked while the device works, and the process lives until the
/// promise is settled.
///
/// All errors reject the promise, those of arguments too, with the class and `code` that other calls
/// throw. `options.signal` gives the result up: the promise is rejected with the signal's reason.
/// Promises pending at `destroy()` are settled, since that waits for their work.
#[napi(
    js_name = "readAsync",
    ts_args_type = "buffer: BufferHandle, byteOffset?: number, byteLength?: number, options?: AsyncOptions",
    ts_return_type = "Promise<Float32Array>"
)]
pub fn read_async(
    env: &Env,
    buffer: Arg,
    byte_offset: Arg,
    byte_length: Arg,
    options: Arg,
) -> napi::Result<Out> {
    let parse = || {
        let buffer = buffer.handle("buffer", "buffer")?;
        let offset = whole_words(byte_offset, "byteOffset")?.unwrap_or(0);
        Ok((buffer, offset, whole_words(byte_length, "byteLength")?))
    };
    promise(env, "readAsync", options, parse, |arguments, ticket| {
        let (buffer, offset, length) = arguments;
        lend::reclaim(env.raw());
        state::with(|context| {
            context.device.check_alive()?;
            let slot = context.buffer_slot("buffer", buffer)?;
            let size = context.buffers.at(slot).map_or(0, |b| b.bytes);
            if offset > size {
                return Err(Error::range(
                    "byteOffset",
                    format!("lies beyond the buffer's {size} bytes"),
                    offset,
                ));
            }
            let bytes = length.unwrap_or((size - offset) & !3);
            completion::start()?;
            let (lease, value) = context.read_staged(buffer, offset, bytes)?;
            completion::when(&context.timeline, value, Some(lease), ticket.done());
            Ok(())
        })
    })
}

/// A byte count or position that must be a multiple of 4.
fn whole_words(argument: Arg, name: &str) -> Result<Option<u64>> {
    if argument.kind() == ValueType::Undefined {
        return Ok(None);
    }
    let bytes = argument.size(name)?;
    if !bytes.is_multiple_of(4) {
        return Err(Error::range(name, "must be a multiple of 4", bytes));
    }
    Ok(Some(bytes))
}

/// Resolves when the timeline value is reached. No thread is blocked meanwhile, and the process lives
/// until then. A value that nothing will signal rejects with a RangeError; `options.signal` gives the
/// wait up, with the signal's reason.
#[napi(
    js_name = "waitAsync",
    ts_args_type = "value: TimelineValue, options?: AsyncOptions",
    ts_return_type = "Promise<void>"
)]
pub fn wait_async(env: &Env, value: Arg, options: Arg) -> napi::Result<Out> {
    let parse = || value.size("value");
    promise(env, "waitAsync", options, parse, |value, ticket| {
        state::with(|context| {
            context.check_value(value)?;
            context.prepare_wait(value)?;
            completion::start()?;
            completion::when(&context.timeline, value, None, ticket.done());
            Ok(())
        })
    })
}

/// Fills `target` with the buffer's bytes from `byteOffset` on, after everything called so far.
/// Blocking. A target that reaches beyond the buffer's end is a RangeError.
#[napi(
    js_name = "readInto",
    ts_args_type = "buffer: BufferHandle, target: ArrayBufferView | ArrayBuffer, byteOffset?: number"
)]
pub fn read_into(env: &Env, buffer: Arg, target: Arg, byte_offset: Arg) -> napi::Result<()> {
    call(env, "readInto", || {
        let buffer = buffer.handle("buffer", "buffer")?;
        let target = target.bytes("target")?;
        let offset = byte_offset.size_or("byteOffset", 0)?;
        let bytes = target.len as u64;
        let (read, timeline) = state::with(|context| {
            context.device.check_alive()?;
            let slot = context.buffer_slot("buffer", buffer)?;
            let size = context.buffers.at(slot).map_or(0, |b| b.bytes);
            if offset.checked_add(bytes).is_none_or(|end| end > size) {
                return Err(Error::range(
                    "target",
                    format!("reaches from byte {offset} beyond the buffer's {size} bytes"),
                    format!("{bytes} bytes"),
                ));
            }
            let read = context.read(buffer, offset, bytes)?;
            Ok((read, Arc::clone(&context.timeline)))
        })?;
        let start = Instant::now();
        match read {
            Read::Direct { value } => {
                timeline.wait(value)?;
                account(start)?;
                if bytes == 0 {
                    return Ok(());
                }
                state::with(|context| {
                    // SAFETY: the target is this call's, and has that many bytes.
                    unsafe { context.read_direct(buffer, offset, bytes, target.data) }
                })
            }
            Read::Staged { lease, value } => {
                if let Err(error) = timeline.wait(value) {
                    // The device may still write there: the block is not reused.
                    lease.abandon();
                    return Err(error);
                }
                account(start)?;
                if bytes > 0 {
                    // SAFETY: the lease holds as many bytes as the target, written by the device;
                    // lent memory is another block.
                    unsafe { ptr::copy_nonoverlapping(lease.pointer(), target.data, target.len) };
                }
                Ok(())
            }
        }
    })
}
