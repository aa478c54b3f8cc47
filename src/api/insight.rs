//! Profiles, memory statistics and watches.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr;

use napi::{Env, ValueType, sys};
use napi_derive::napi;
use serde_json::Value;

use super::convert::{Arg, copied};
use super::raise::call;
use super::state;
use super::unwind::guard;
use super::values::{
    Made, Object, Out, array, boolean, check, clear_exception, data, exception, function, made,
    null, number, property, string, undefined,
};
use crate::context::{Context, Floats};
use crate::error::{Error, Result};
use crate::observe::pressure::{LISTENERS, Use};
use crate::observe::profile;
use crate::test_faults::panic_if_asked;

/// Converts JSON to a JS value.
fn value(env: sys::napi_env, json: &Value) -> Made {
    match json {
        Value::Null => null(env),
        Value::Bool(on) => boolean(env, *on),
        Value::Number(n) => number(env, n.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => string(env, text),
        Value::Array(items) => array(env, items.iter().map(|item| value(env, item))),
        Value::Object(fields) => {
            let add =
                |object: Object, (name, field): (&String, _)| object.value(name, value(env, field));
            fields.iter().fold(Object::new(env), add).done()
        }
    }
}

/// An object for `using` and `await using`: `end` is its method `name`, and its method for both symbols.
fn disposable(env: sys::napi_env, name: &str, end: Made) -> Result<Object> {
    let end = end?;
    // SAFETY: `env` is live.
    let global = made(env, "napi_get_global", |global| unsafe {
        sys::napi_get_global(env, global)
    })?;
    let symbols = property(env, global, c"Symbol")?;
    let mut object = Object::new(env).value(name, Ok(end));
    for name in [c"dispose", c"asyncDispose"] {
        // Older runtimes have no such symbol.
        let symbol = property(env, symbols, name)?;
        if Arg::of(env, symbol).kind() == ValueType::Symbol {
            object = object.keyed(Ok(symbol), Ok(end));
        }
    }
    Ok(object)
}

/// Starts a profile of everything called until `profileStop`: GPU time by pipeline (named by `setName` or
/// `createPipeline`), host calls and host phases.
///
/// `options.trace` is a file that the profile writes as it runs, in the trace-event form that Perfetto and Chrome's
/// tracing read: host calls, submissions and GPU work on one clock.
///
/// A timestamp follows every command, so commands overlap less on the device. A graph recorded under a profile is
/// measured command by command at each launch under that profile; a graph recorded before counts as one span. The
/// returned object ends the profile when it is disposed of, which discards the result; `stop()` is `profileStop()`.
///
/// Throws `ERR_HELIOS_INVALID_BATCH` while a profile runs, `ERR_HELIOS_UNSUPPORTED` if the queue has no timestamps, and
/// a RangeError if the file cannot be written.
#[napi(
    js_name = "profileStart",
    ts_args_type = "options?: ProfileOptions",
    ts_return_type = "ProfileSession"
)]
pub fn profile_start(env: &Env, options: Arg) -> napi::Result<Out> {
    call(env, "profileStart", || {
        let mut trace = None;
        if !options.missing() {
            if options.kind() != ValueType::Object {
                return Err(options.wrong("options", "an object"));
            }
            let file = options.property("trace")?;
            if !file.missing() {
                trace = Some(PathBuf::from(file.string("options.trace")?));
            }
        }
        // Made first, so that an error leaves no profile running.
        let raw = env.raw();
        let object = disposable(raw, "stop", function(raw, end_profile, 0))?;
        let object = object
            .value("stop", function(raw, stop_profile, 0))
            .done()?;
        state::with(|context| context.profile_start(trace.as_deref()))?;
        Ok(Out(object))
    })
}

fn stop(env: sys::napi_env) -> Made {
    state::with(Context::profile_stop).and_then(|result| value(env, &result))
}

/// `stop()` of a profile's object.
unsafe extern "C" fn stop_profile(
    env: sys::napi_env,
    _: sys::napi_callback_info,
) -> sys::napi_value {
    call(&Env::from_raw(env), "profileStop", || stop(env)).unwrap_or(ptr::null_mut())
}

/// Disposes of a profile's object; does nothing if the profile was stopped.
unsafe extern "C" fn end_profile(
    env: sys::napi_env,
    _: sys::napi_callback_info,
) -> sys::napi_value {
    let ended = call(&Env::from_raw(env), "profileStop", || {
        if profile::running() {
            let _unseen = stop(env)?;
        }
        undefined(env)
    });
    ended.unwrap_or(ptr::null_mut())
}

/// Waits for everything called so far and ends the profile. Returns, by pipeline and longest first: GPU time, count,
/// share, and GB/s or TFLOP/s where bytes or operations are known (`profileWork`; those of uploads, reads, copies and
/// fills always are). Also host time by call and by phase. Times are in microseconds.
#[napi(js_name = "profileStop", ts_return_type = "Profile")]
pub fn profile_stop(env: &Env) -> napi::Result<Out> {
    call(env, "profileStop", || stop(env.raw()).map(Out))
}

/// Announces the work of the next dispatches, in order: pairs of bytes moved and operations done, 0 where unknown.
///
/// Call it on the thread that records them, before it does. The next call drops pairs that were not used. Does nothing
/// while no profile runs.
#[napi(js_name = "profileWork", ts_args_type = "pairs: Float64Array")]
pub fn profile_work(env: &Env, pairs: Arg) -> napi::Result<()> {
    call(env, "profileWork", || {
        // SAFETY: used before control returns to JS.
        let bytes = copied(unsafe { pairs.bytes("pairs")?.source() })?;
        if !bytes.len().is_multiple_of(16) {
            return Err(Error::range(
                "pairs",
                "must hold pairs of 64-bit floats",
                format!("{} bytes", bytes.len()),
            ));
        }
        if profile::on() {
            // The pairs are for calls that follow.
            state::with(|context| {
                context.record_pending();
                Ok(())
            })?;
            let float = |b: &[u8]| b.try_into().map_or(0.0, f64::from_le_bytes);
            let pairs = bytes.chunks_exact(16);
            profile::work(pairs.map(|pair| [float(&pair[..8]), float(&pair[8..])]));
        }
        Ok(())
    })
}

/// Memory use in bytes: live buffers by size class and by name (`setName`), blocks taken from the driver, what is kept
/// for reuse or waits for the device, staging, the heaps with use and budget as the driver reports them
/// (VK_EXT_memory_budget), and the high-water marks since `initDevice`.
#[napi(js_name = "memoryStats", ts_return_type = "MemoryStats")]
pub fn memory_stats(env: &Env) -> napi::Result<Out> {
    call(env, "memoryStats", || {
        let stats = state::with(|context| Ok(context.memory_stats()))?;
        value(env.raw(), &stats).map(Out)
    })
}

thread_local! {
    /// This environment's functions that [`report`] reaches, by the listener's number.
    static REPORTERS: RefCell<HashMap<u64, sys::napi_threadsafe_function>> = RefCell::new(HashMap::new());
}

/// A threadsafe function, called under the lock of [`LISTENERS`] until its listener is removed.
struct Wake(sys::napi_threadsafe_function);

// SAFETY: whoever meets a shortage calls the function, under the lock of `LISTENERS`, which Node-API allows from
// any thread; its own thread releases it in `end_listening`, after the listener has been removed under that lock.
unsafe impl Send for Wake {}

impl Wake {
    fn report(&self, now: Use) {
        let message = Box::into_raw(Box::new(now));
        // SAFETY: the function lives until its listener is gone.
        let status = unsafe {
            sys::napi_call_threadsafe_function(
                self.0,
                message.cast(),
                sys::ThreadsafeFunctionCallMode::nonblocking,
            )
        };
        if status != sys::Status::napi_ok {
            // SAFETY: nobody else has it.
            drop(unsafe { Box::from_raw(message) });
        }
    }
}

/// On the JS thread: calls the callback with what [`Wake::report`] sent.
unsafe extern "C" fn report(
    env: sys::napi_env,
    callback: sys::napi_value,
    _: *mut c_void,
    message: *mut c_void,
) {
    // SAFETY: the box that `Wake::report` leaked, handed over exactly once.
    let now = unsafe { Box::from_raw(message.cast::<Use>()) };
    guard((), || reported(env, callback, *now));
}

fn reported(env: sys::napi_env, callback: sys::napi_value, now: Use) {
    panic_if_asked("pressure");
    if env.is_null() || callback.is_null() {
        // The environment ends.
        return;
    }
    let argument = Object::new(env)
        .integer("usageBytes", now.used)
        .integer("budgetBytes", now.budget)
        .number("fraction", now.fraction())
        .done();
    let called = argument.and_then(|argument| {
        let (this, result) = (undefined(env)?, ptr::null_mut());
        // SAFETY: values of `env`.
        let status = unsafe { sys::napi_call_function(env, this, callback, 1, &argument, result) };
        check(env, "napi_call_function", status)
    });
    // Without an exception the environment is ending and runs no more callbacks.
    if let (Err(_), Some(exception)) = (called, exception(env)) {
        // SAFETY: a value of `env`. Uncaught, it ends the process or goes to its listeners; a status comes after that.
        let _ = unsafe { sys::napi_fatal_exception(env, exception) };
    }
}

fn end_listening(id: u64) {
    if !LISTENERS.remove(id) {
        return;
    }
    if let Some(wake) = REPORTERS.with(|map| map.borrow_mut().remove(&id)) {
        // SAFETY: nobody calls it any more; what is under way is still delivered. What is not released the runtime
        // ends with the environment.
        let _ = unsafe {
            sys::napi_release_threadsafe_function(wake, sys::ThreadsafeFunctionReleaseMode::release)
        };
    }
}

unsafe extern "C" fn close_pressure(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    guard((), || {
        if let Some(id) = data(env, info) {
            end_listening(id);
        }
    });
    // Null is undefined to the caller.
    ptr::null_mut()
}

/// Calls `callback` on this thread's event loop whenever use of device memory rises to `fraction` of the budget: what
/// the driver reports (VK_EXT_memory_budget), or else the size of the largest device-local heap.
///
/// Checked now, in `memoryStats`, and whenever memory is taken from the driver. The listener does not keep the process
/// alive, and outlives `destroy()`. `close()` of the returned object, or `using`, removes it.
#[napi(
    js_name = "onMemoryPressure",
    ts_args_type = "fraction: number, callback: (pressure: MemoryPressure) => void",
    ts_return_type = "Subscription"
)]
pub fn on_memory_pressure(env: &Env, fraction: Arg, callback: Arg) -> napi::Result<Out> {
    call(env, "onMemoryPressure", || {
        let fraction = fraction.float("fraction")?;
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(Error::range(
                "fraction",
                "must be above 0 and at most 1",
                fraction,
            ));
        }
        if callback.kind() != ValueType::Function {
            return Err(callback.wrong("callback", "a function"));
        }
        // Fails without a device, since there is nothing to check.
        state::with(|_| Ok(()))?;
        let raw = env.raw();
        let resource = string(raw, "helios memory pressure")?;
        let mut wake = ptr::null_mut();
        // SAFETY: `env` is live and the callback a function of it.
        let status = unsafe {
            sys::napi_create_threadsafe_function(
                raw,
                callback.raw(),
                ptr::null_mut(),
                resource,
                0,
                1,
                ptr::null_mut(),
                None,
                ptr::null_mut(),
                Some(report),
                &mut wake,
            )
        };
        check(raw, "napi_create_threadsafe_function", status)?;
        // SAFETY: just created, on this thread. Where it fails, the process lives until `close()`.
        let _ = unsafe { sys::napi_unref_threadsafe_function(raw, wake) };
        let first = REPORTERS.with(|map| map.borrow().is_empty());
        let listener = Wake(wake);
        let id = LISTENERS.add(fraction, Box::new(move |now| listener.report(now)));
        let _new = REPORTERS.with(|map| map.borrow_mut().insert(id, wake));
        if first {
            // Hooks run last in, first out, so this one runs before the runtime destroys its functions.
            let hook = env.add_env_cleanup_hook((), |()| {
                guard((), || {
                    let ids: Vec<u64> =
                        REPORTERS.with(|map| map.borrow().keys().copied().collect());
                    ids.into_iter().for_each(end_listening);
                });
            });
            if hook.is_err() {
                clear_exception(raw);
            }
        }
        let subscription =
            disposable(raw, "close", function(raw, close_pressure, id)).and_then(Object::done);
        let looked = || {
            state::with(|context| {
                context.look_at_memory();
                Ok(())
            })
        };
        match subscription.and_then(|object| looked().map(|()| object)) {
            Ok(object) => Ok(Out(object)),
            Err(error) => {
                end_listening(id);
                Err(error)
            }
        }
    })
}

fn unwatch(id: u64) {
    // Destroying the device has ended the watch too.
    let _ = state::with(|context| Ok(context.unwatch_nan(id)));
}

unsafe extern "C" fn close_watch(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    guard((), || {
        if let Some(id) = data(env, info) {
            unwatch(id);
        }
    });
    // Null is undefined to the caller.
    ptr::null_mut()
}

/// Checks the buffer for NaNs, on the device, after every submission that may have written it.
///
/// After one is found, the next wait, read or promise throws (or rejects with) `ERR_HELIOS_NAN`; its report says what
/// was submitted last. The watch ends with that. `options.type` is the type of the elements: `f32` (the default), `f16`
/// or `bf16`; only whole 32-bit words are checked. `close()` of the returned object, or `using`, ends the watch.
#[napi(
    js_name = "watchNan",
    ts_args_type = "buffer: BufferHandle, options?: WatchOptions",
    ts_return_type = "Subscription"
)]
pub fn watch_nan(env: &Env, buffer: Arg, options: Arg) -> napi::Result<Out> {
    call(env, "watchNan", || {
        let buffer = buffer.handle("buffer", "buffer")?;
        let mut floats = Floats::F32;
        if !options.missing() {
            if options.kind() != ValueType::Object {
                return Err(options.wrong("options", "an object"));
            }
            let kind = options.property("type")?;
            if !kind.missing() {
                floats = match kind.string("options.type")?.as_str() {
                    "f32" => Floats::F32,
                    "f16" => Floats::F16,
                    "bf16" => Floats::Bf16,
                    _ => return Err(kind.wrong("options.type", "'f32', 'f16' or 'bf16'")),
                };
            }
        }
        let id = state::with(|context| context.watch_nan(buffer, floats))?;
        let raw = env.raw();
        let object = disposable(raw, "close", function(raw, close_watch, id));
        let object = object.and_then(Object::done);
        object.inspect_err(|_| unwatch(id)).map(Out)
    })
}
