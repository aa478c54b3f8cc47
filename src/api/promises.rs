//! Reads and waits as promises, and reads into the caller's memory.
//!
//! A promise is settled on its own JS thread. The completion thread puts the outcome into that thread's mailbox, which
//! keeps the event loop alive exactly while promises are pending.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;

use napi::{Env, Status, ValueType, sys};
use napi_derive::napi;
use parking_lot::Mutex;

use super::convert::Arg;
use super::raise::{build, call, stack, stack_of, throw};
use super::unwind::{caught, guard};
use super::values::{
    Made, Object, Out, check, clear_exception, data, ending, exception, function, made, property,
    runs, set, string, undefined,
};
use super::{resources, results, state};
use crate::context::{Context, Read};
use crate::error::{Error, Result};
use crate::memory::staging::Lease;
use crate::queue::completion::{self, Done};
use crate::test_faults::panic_if_asked;

/// How one promise's work ended: an error, or a block of bytes if it was a read.
type Outcome = Result<Option<Lease>>;

struct Mail {
    /// Wakes the JS thread; none once its environment has ended.
    wake: Option<sys::napi_threadsafe_function>,
    arrived: Vec<(u64, Outcome)>,
}

// SAFETY: the completion thread calls the function, in `deliver`, and this environment's thread releases it,
// in `Environment::drop`: Node-API allows the former from any thread, and the mailbox's lock, which both hold,
// keeps the latter from coming in between. What has arrived is `Send` by itself.
unsafe impl Send for Mail {}

type Mailbox = Arc<Mutex<Mail>>;

fn deliver(mailbox: &Mailbox, id: u64, outcome: Outcome) {
    let mut mail = mailbox.lock();
    let Some(wake) = mail.wake else {
        return;
    };
    mail.arrived.push((id, outcome));
    if mail.arrived.len() == 1 {
        // SAFETY: the function lives while `wake` is there. Its queue has no bound, so only an environment that is
        // ending refuses, and settles no promise.
        let _ = unsafe {
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
    /// JS stack of the call, if enabled: capturing one takes longer than the call.
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

impl Environment {
    fn new(env: sys::napi_env) -> Result<Self> {
        let resource = string(env, "helios completion")?;
        let mut wake = ptr::null_mut();
        // SAFETY: `env` is live. Without a JS function of its own, `settle_arrived` alone is called.
        let status = unsafe {
            sys::napi_create_threadsafe_function(
                env,
                ptr::null_mut(),
                ptr::null_mut(),
                resource,
                0,
                1,
                ptr::null_mut(),
                None,
                ptr::null_mut(),
                Some(settle_arrived),
                &mut wake,
            )
        };
        check(env, "napi_create_threadsafe_function", status)?;
        let environment = Self {
            mailbox: Arc::new(Mutex::new(Mail {
                wake: Some(wake),
                arrived: Vec::new(),
            })),
            wake,
            pending: HashMap::new(),
            promises: 0,
        };
        // SAFETY: just created, on this thread. Nothing is pending yet.
        let status = unsafe { sys::napi_unref_threadsafe_function(env, wake) };
        check(env, "napi_unref_threadsafe_function", status).map(|()| environment)
    }
}

impl Drop for Environment {
    /// Its pending promises are never settled; blocks that arrive for them are returned to the pool.
    fn drop(&mut self) {
        let mut mail = self.mailbox.lock();
        if let Some(wake) = mail.wake.take() {
            // SAFETY: the function lives until released here; nobody calls it without the lock. What is not released
            // the runtime ends with the environment.
            let _ = unsafe {
                sys::napi_release_threadsafe_function(
                    wake,
                    sys::ThreadsafeFunctionReleaseMode::abort,
                )
            };
        }
        let arrived = std::mem::take(&mut mail.arrived);
        drop(mail);
        drop(arrived);
    }
}

/// Makes sure that this thread has its [`Environment`].
fn enter(env: &Env) -> Result<()> {
    if ENVIRONMENT.with(|slot| slot.borrow().is_some()) {
        return Ok(());
    }
    let made = Environment::new(env.raw())?;
    let unused = ENVIRONMENT.with(|slot| {
        let mut slot = slot.borrow_mut();
        match &*slot {
            // JavaScript that ran in between has made one already.
            Some(_) => Some(made),
            None => slot.replace(made),
        }
    });
    if unused.is_none() {
        // Hooks run last in, first out, so this one runs before the runtime's own, which destroys the function.
        let hook = env.add_env_cleanup_hook((), |()| {
            guard((), || {
                drop(ENVIRONMENT.with(|slot| slot.borrow_mut().take()))
            });
        });
        if let Err(error) = hook {
            drop(ENVIRONMENT.with(|slot| slot.borrow_mut().take()));
            return Err(Error::Internal(format!("no cleanup hook: {error}")));
        }
    }
    Ok(())
}

/// Creates a promise: its id and the JS object.
fn open(env: &Env, name: &'static str) -> Result<(u64, sys::napi_value)> {
    // These three calls may run JavaScript (async_hooks, Error.prepareStackTrace), which may call us again: nothing is
    // borrowed across them.
    enter(env)?;
    let stack = state::stacks().then(|| stack(env.raw()));
    let (mut deferred, mut promise) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: `env` is live, here and below.
    let status = unsafe { sys::napi_create_promise(env.raw(), &mut deferred, &mut promise) };
    check(env.raw(), "napi_create_promise", status)?;
    ENVIRONMENT.with(|slot| {
        let mut slot = slot.borrow_mut();
        let environment = slot.as_mut().ok_or_else(ending)?;
        if environment.pending.is_empty() {
            // SAFETY: on the function's own thread.
            let status = unsafe { sys::napi_ref_threadsafe_function(env.raw(), environment.wake) };
            check(env.raw(), "napi_ref_threadsafe_function", status)?;
        }
        environment.promises += 1;
        let id = environment.promises;
        let pending = Pending {
            name,
            deferred,
            listening: None,
            stack,
        };
        let _new = environment.pending.insert(id, pending);
        Ok((id, promise))
    })
}

/// Takes a promise that is about to be settled; none if it already was.
fn close(env: sys::napi_env, id: u64) -> Option<Pending> {
    ENVIRONMENT.with(|slot| {
        let mut slot = slot.borrow_mut();
        let environment = slot.as_mut()?;
        let pending = environment.pending.remove(&id)?;
        if environment.pending.is_empty() {
            // SAFETY: on the function's own thread. Where it fails, the process lives on without need.
            let _ = unsafe { sys::napi_unref_threadsafe_function(env, environment.wake) };
        }
        Some(pending)
    })
}

fn referenced(env: sys::napi_env, reference: sys::napi_ref) -> Made {
    // SAFETY: a strong reference of this environment.
    let make = |value| unsafe { sys::napi_get_reference_value(env, reference, value) };
    made(env, "napi_get_reference_value", make)
}

/// A strong reference, to be released with [`forget`].
fn reference(env: sys::napi_env, value: sys::napi_value) -> Result<sys::napi_ref> {
    let mut reference = ptr::null_mut();
    // SAFETY: an object of `env`.
    let status = unsafe { sys::napi_create_reference(env, value, 1, &mut reference) };
    check(env, "napi_create_reference", status).map(|()| reference)
}

fn forget(env: sys::napi_env, reference: sys::napi_ref) {
    // SAFETY: a reference of this environment, not used again. If it fails, it ends with the environment.
    let _ = unsafe { sys::napi_delete_reference(env, reference) };
}

/// Calls a method of the signal; whether it succeeded.
fn invoke(
    env: sys::napi_env,
    object: sys::napi_value,
    name: &CStr,
    arguments: &[sys::napi_value],
) -> bool {
    let Ok(method) = property(env, object, name) else {
        return false;
    };
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
    /// Removes the listener from the signal.
    fn stop_listening(&mut self, env: sys::napi_env) {
        if let Some(Listening { signal, listener }) = self.listening.take() {
            let removed = || {
                let arguments = [string(env, "abort")?, referenced(env, listener)?];
                let signal = referenced(env, signal)?;
                Ok::<_, Error>(invoke(env, signal, c"removeEventListener", &arguments))
            };
            // If the listener stays, it finds no promise with its number and does nothing.
            let _ = removed();
            forget(env, signal);
            forget(env, listener);
        }
    }

    fn resolve(mut self, env: sys::napi_env, value: sys::napi_value) {
        self.stop_listening(env);
        // SAFETY: the deferred is settled here alone, since it left the table. No exception is pending, so that only
        // an environment that is ending refuses, where nobody is left to see the promise.
        let _ = unsafe { sys::napi_resolve_deferred(env, self.deferred, value) };
    }

    fn reject(mut self, env: sys::napi_env, reason: sys::napi_value) {
        self.stop_listening(env);
        // SAFETY: as above, the status too.
        let _ = unsafe { sys::napi_reject_deferred(env, self.deferred, reason) };
    }

    fn settle(self, env: sys::napi_env, outcome: Outcome) {
        let outcome = outcome.and_then(|lease| {
            // `destroy()` settles promises too, and then there is no device.
            match state::with(Context::found_nan) {
                Err(error @ Error::Nan { .. }) => Err(error),
                _ => Ok(lease),
            }
        });
        let value = caught(|| {
            panic_if_asked("settle");
            match outcome? {
                Some(lease) => floats(env, lease),
                None => undefined(env),
            }
        });
        match value {
            Ok(value) => self.resolve(env, value),
            Err(error) => {
                let reason = build(env, self.name, &error, "");
                if let Some(stack) = &self.stack {
                    // Keeps the error's own first line, then the frames of the call.
                    let frames = stack.find('\n').map_or("", |at| &stack[at..]);
                    let own = stack_of(env, reason);
                    let first = own.lines().next().unwrap_or_default();
                    let text = string(env, &format!("{first}{frames}"));
                    if set(env, reason, "stack", text).is_err() {
                        // Keep the error's own stack: setting another failed, or JavaScript threw the value.
                        clear_exception(env);
                    }
                }
                self.reject(env, reason);
            }
        }
    }
}

fn floats(env: sys::napi_env, lease: Lease) -> Result<sys::napi_value> {
    let bytes = lease.len();
    let buffer = results::array_buffer_of(env, lease)?;
    results::floats(env, buffer, bytes)
}

/// On the JS thread: settles the promises whose outcomes have arrived.
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
    guard((), || settle_all(env));
}

fn settle_all(env: sys::napi_env) {
    let arrived = ENVIRONMENT.with(|e| {
        let environment = e.borrow();
        environment
            .as_ref()
            .map_or_else(Vec::new, |e| std::mem::take(&mut e.mailbox.lock().arrived))
    });
    // A worker that has not returned to its event loop for long may have thousands.
    if !runs(env) {
        return;
    }
    for (id, outcome) in arrived {
        let Some(pending) = close(env, id) else {
            // Aborted meanwhile: the block returns to the pool.
            continue;
        };
        let mut scope = ptr::null_mut();
        // SAFETY: `env` is live; the scope is closed below, values of it are not kept.
        let opened = unsafe { sys::napi_open_handle_scope(env, &mut scope) };
        pending.settle(env, outcome);
        // With no scope of their own, the values live until this function returns.
        if opened == sys::Status::napi_ok {
            // SAFETY: opened above, so that it closes.
            let _ = unsafe { sys::napi_close_handle_scope(env, scope) };
        }
    }
}

/// The reason of an aborted signal.
fn reason(env: sys::napi_env, signal: sys::napi_value, name: &str) -> sys::napi_value {
    match property(env, signal, c"reason") {
        Ok(reason) if Arg::of(env, reason).kind() != ValueType::Undefined => reason,
        _ => build(env, name, &Error::Aborted("aborted".to_owned()), ""),
    }
}

/// The listener: `data` is the promise's id.
unsafe extern "C" fn on_abort(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    guard((), || {
        if let Some(id) = data(env, info) {
            abort(env, id);
        }
    });
    ptr::null_mut()
}

fn abort(env: sys::napi_env, id: u64) {
    panic_if_asked("abort");
    if let Some(pending) = close(env, id) {
        let signal = pending
            .listening
            .as_ref()
            .map(|l| referenced(env, l.signal));
        let reason = match signal {
            Some(Ok(signal)) => reason(env, signal, pending.name),
            // The signal fired while the listener was being added.
            _ => build(env, pending.name, &Error::Aborted("aborted".to_owned()), ""),
        };
        pending.reject(env, reason);
    }
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

/// Lets the signal reject the promise from now on.
fn listen(env: sys::napi_env, id: u64, signal: Arg) -> Result<()> {
    let failed = || signal.wrong(SIGNAL, "an AbortSignal that can be listened to");
    let listener = function(env, on_abort, id)?;
    let once = Object::new(env).boolean("once", true).done()?;
    let arguments = [string(env, "abort")?, listener, once];
    // Released when the promise is settled.
    let signal_ref = reference(env, signal.raw())?;
    let listener_ref = reference(env, listener).inspect_err(|_| forget(env, signal_ref))?;
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
    if !invoke(env, signal.raw(), c"addEventListener", &arguments) {
        return Err(failed());
    }
    Ok(())
}

/// Where to send the outcome of a promise's work.
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

/// Makes the promise of the call `name`: `parse` checks the arguments, then `start` begins the work, unless the signal
/// is already aborted. Every error rejects the promise.
fn promise<A>(
    env: &Env,
    name: &'static str,
    options: Arg,
    parse: impl FnOnce() -> Result<A>,
    start: impl FnOnce(A, Ticket) -> Result<()>,
) -> napi::Result<Out> {
    let raw = env.raw();
    let (id, promise) = caught(|| open(env, name)).map_err(|error| {
        throw(raw, name, &error, "");
        napi::Error::new(Status::PendingException, String::new())
    })?;
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
        // The exception that `call` threw. If the runtime cannot return it, the environment is ending and sees no
        // rejection either.
        let thrown = exception(raw);
        if let (Some(pending), Some(thrown)) = (close(raw, id), thrown) {
            pending.reject(raw, thrown);
        }
    }
    Ok(Out(promise))
}

/// Reads `byteLength` bytes from `byteOffset` on (by default all to the end) as floats. The data are those at this
/// call's place in the order of calls; later calls do not show in them. Offset and length are multiples of 4.
///
/// Blocks no thread while the device works. The process stays alive until the promise is settled.
///
/// Every error rejects the promise, including wrong arguments, with the class and `code` that other calls throw.
/// Aborting `options.signal` gives the result up: the promise rejects with the signal's reason. `destroy()` waits for
/// pending work, so it settles pending promises.
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
        let mut ticket = Some(ticket);
        results::collecting(env.raw(), || {
            state::with(|context| {
                context.device.check_alive()?;
                let size = context.buffer_bytes("buffer", buffer)?;
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
                if let Some(ticket) = ticket.take() {
                    completion::when(&context.timeline, value, Some(lease), ticket.done());
                }
                Ok(())
            })
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

/// Resolves when the timeline value is reached. Blocks no thread; the process stays alive until then.
///
/// Rejects with a RangeError for a value that nothing will signal. Aborting `options.signal` gives the wait up: the
/// promise rejects with the signal's reason.
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

/// Fills `target` with the buffer's bytes from `byteOffset` on, after everything called so far. Blocks. Throws a
/// RangeError if the target is longer than the rest of the buffer.
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
        let (read, timeline) = results::collecting(env.raw(), || {
            state::with(|context| {
                context.device.check_alive()?;
                let size = context.buffer_bytes("buffer", buffer)?;
                if offset.checked_add(bytes).is_none_or(|end| end > size) {
                    return Err(Error::range(
                        "target",
                        format!("reaches from byte {offset} beyond the buffer's {size} bytes"),
                        format!("{bytes} bytes"),
                    ));
                }
                let read = context.read(buffer, offset, bytes)?;
                Ok((read, Arc::clone(&context.timeline)))
            })
        })?;
        match read {
            Read::Direct { value } => {
                resources::wait(env.raw(), &timeline, value)?;
                if bytes == 0 {
                    return Ok(());
                }
                state::with(|context| {
                    // SAFETY: the target is this call's, and has that many bytes.
                    unsafe { context.read_direct(buffer, offset, bytes, target.data) }
                })
            }
            Read::Staged { lease, value } => {
                let lease = resources::filled(env.raw(), &timeline, value, lease)?;
                if bytes > 0 {
                    // SAFETY: the lease holds as many bytes as the target, written by the device;
                    // the memory of an external ArrayBuffer is another block.
                    unsafe { ptr::copy_nonoverlapping(lease.pointer(), target.data, target.len) };
                }
                Ok(())
            }
        }
    })
}
