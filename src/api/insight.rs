//! Profiles, memory, and watches.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr;

use napi::{Env, ValueType, sys};
use napi_derive::napi;
use serde_json::Value;

use super::convert::{
    Arg, Object, Out, array, boolean, clear_exception, number, string, undefined,
};
use super::raise::call;
use super::state;
use crate::context::{Context, Floats};
use crate::error::{Error, Result};
use crate::pressure::{LISTENERS, Use};
use crate::profile;

/// A JS value of a JSON one.
fn value(env: sys::napi_env, json: &Value) -> sys::napi_value {
    match json {
        Value::Null => {
            let mut null = ptr::null_mut();
            // SAFETY: `env` is live.
            unsafe { sys::napi_get_null(env, &mut null) };
            null
        }
        Value::Bool(on) => boolean(env, *on),
        Value::Number(n) => number(env, n.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => string(env, text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| value(env, item)).collect();
            array(env, &items)
        }
        Value::Object(fields) => {
            let mut object = Object::new(env);
            for (name, field) in fields {
                object = object.value(name, value(env, field));
            }
            object.raw
        }
    }
}

/// A method that knows a number and takes no argument.
fn method(
    env: sys::napi_env,
    body: unsafe extern "C" fn(sys::napi_env, sys::napi_callback_info) -> sys::napi_value,
    data: u64,
) -> sys::napi_value {
    let mut function = ptr::null_mut();
    // SAFETY: `env` is live; the number travels in place of a pointer and is none.
    unsafe {
        sys::napi_create_function(
            env,
            ptr::null(),
            0,
            Some(body),
            data as *mut c_void,
            &mut function,
        )
    };
    function
}

/// The number that [`method`] was given.
fn data(env: sys::napi_env, info: sys::napi_callback_info) -> u64 {
    let mut data = ptr::null_mut();
    // SAFETY: the runtime calls with its `info`; only the data is asked for.
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
    data as u64
}

/// An object that `using` and `await using` end: `end` under its name and under both symbols.
fn disposable(env: sys::napi_env, name: &str, end: sys::napi_value) -> Object {
    let object = Object::new(env).value(name, end);
    let mut symbols = ptr::null_mut();
    // SAFETY: `env` is live, here and below; `Symbol` is an object.
    unsafe {
        let mut global = ptr::null_mut();
        sys::napi_get_global(env, &mut global);
        sys::napi_get_named_property(env, global, c"Symbol".as_ptr(), &mut symbols);
    }
    for name in [c"dispose", c"asyncDispose"] {
        let mut symbol = ptr::null_mut();
        let mut kind = 0;
        // SAFETY: as above; older runtimes have no such symbol.
        unsafe {
            sys::napi_get_named_property(env, symbols, name.as_ptr(), &mut symbol);
            sys::napi_typeof(env, symbol, &mut kind);
            if kind == sys::ValueType::napi_symbol {
                sys::napi_set_property(env, object.raw, symbol, end);
            }
        }
    }
    object
}

/// Begins a profile: GPU time by pipeline (named by `setName` or `createPipeline`), host calls and host
/// phases, of everything that is called until `profileStop`. `options.trace`: a file that is written
/// meanwhile, in the trace-event form that Perfetto and Chrome's tracing show, host calls, submissions
/// and GPU work on one clock.
///
/// A timestamp follows every command, so commands that could overlap on the device do so less. A graph
/// that is recorded while a profile runs is measured command by command at every launch under that
/// profile; one that was recorded before counts as one span. The object that comes back ends the profile
/// when it is disposed of, and then its result is lost; `stop()` is `profileStop()`.
///
/// Throws `ERR_HELIOS_INVALID_BATCH` while a profile runs, `ERR_HELIOS_UNSUPPORTED` where the queue has
/// no timestamps, and a RangeError for a file that cannot be written.
#[napi(
    js_name = "profileStart",
    ts_args_type = "options?: { trace?: string }",
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
        state::with(|context| context.profile_start(trace.as_deref()))?;
        let raw = env.raw();
        let stop = method(raw, stop_profile, 0);
        let end = method(raw, end_profile, 0);
        let object = disposable(raw, "stop", end);
        Ok(Out(object.value("stop", stop).raw))
    })
}

fn stop(env: sys::napi_env) -> Result<sys::napi_value> {
    state::with(Context::profile_stop).map(|result| value(env, &result))
}

/// `stop()` of a profile's object.
unsafe extern "C" fn stop_profile(
    env: sys::napi_env,
    _: sys::napi_callback_info,
) -> sys::napi_value {
    call(&Env::from_raw(env), "profileStop", || stop(env)).unwrap_or(ptr::null_mut())
}

/// The end of a profile's scope: nothing where it was stopped before.
unsafe extern "C" fn end_profile(
    env: sys::napi_env,
    _: sys::napi_callback_info,
) -> sys::napi_value {
    let ended = call(&Env::from_raw(env), "profileStop", || {
        if profile::running() {
            stop(env)?;
        }
        Ok(undefined(env))
    });
    ended.unwrap_or(ptr::null_mut())
}

/// Waits for everything called so far and ends the profile: GPU time, count, share, and GB/s or TFLOP/s
/// where bytes or operations were given (those of uploads, reads, copies and fills are known), by
/// pipeline, longest first; host time by call and by phase. Times are in microseconds.
#[napi(js_name = "profileStop", ts_return_type = "Profile")]
pub fn profile_stop(env: &Env) -> napi::Result<Out> {
    call(env, "profileStop", || stop(env.raw()).map(Out))
}

/// Says what the next dispatches do, in order: pairs of bytes moved and operations done, 0 where unknown.
/// Given before the calls that record them, from the thread that calls them; pairs that are left over
/// when it is called again are dropped. Does nothing while no profile runs.
#[napi(js_name = "profileWork", ts_args_type = "pairs: Float64Array")]
pub fn profile_work(env: &Env, pairs: Arg) -> napi::Result<()> {
    call(env, "profileWork", || {
        // SAFETY: used before control returns to JS.
        let bytes = unsafe { pairs.bytes("pairs")?.slice() };
        if !bytes.len().is_multiple_of(16) {
            return Err(Error::range(
                "pairs",
                "must hold pairs of 64-bit floats",
                format!("{} bytes", bytes.len()),
            ));
        }
        if profile::on() {
            // The pairs are of the calls to come.
            state::with(|context| {
                context.settle();
                Ok(())
            })?;
            let float = |b: &[u8]| b.try_into().map_or(0.0, f64::from_le_bytes);
            let pairs = bytes.chunks_exact(16);
            profile::work(pairs.map(|pair| [float(&pair[..8]), float(&pair[8..])]));
        }
        Ok(())
    })
}

/// Where memory goes, in bytes: live buffers by size class and by name (`setName`), blocks taken from the
/// driver, what is kept for reuse or awaits the device, staging, the heaps with the driver's account of
/// use and budget (VK_EXT_memory_budget), and the high-water marks since `initDevice`.
#[napi(js_name = "memoryStats", ts_return_type = "MemoryStats")]
pub fn memory_stats(env: &Env) -> napi::Result<Out> {
    call(env, "memoryStats", || {
        let stats = state::with(|context| Ok(context.memory_stats()))?;
        Ok(Out(value(env.raw(), &stats)))
    })
}

thread_local! {
    /// This environment's functions that [`tell`] reaches, by the listener's number.
    static TOLD: RefCell<HashMap<u64, sys::napi_threadsafe_function>> = RefCell::new(HashMap::new());
}

/// A threadsafe function, called under the lock of [`LISTENERS`] until its listener is removed.
struct Wake(sys::napi_threadsafe_function);

// SAFETY: a threadsafe function may be called from any thread while it lives.
unsafe impl Send for Wake {}

impl Wake {
    fn tell(&self, now: Use) {
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

/// On the JS thread: calls the callback with what [`Wake::tell`] sent.
unsafe extern "C" fn tell(
    env: sys::napi_env,
    callback: sys::napi_value,
    _: *mut c_void,
    message: *mut c_void,
) {
    // SAFETY: the box that `Wake::tell` leaked, handed over exactly once.
    let now = unsafe { Box::from_raw(message.cast::<Use>()) };
    if env.is_null() || callback.is_null() {
        // The environment ends.
        return;
    }
    let argument = Object::new(env)
        .integer("usageBytes", now.used)
        .integer("budgetBytes", now.budget)
        .number("fraction", now.fraction())
        .raw;
    // SAFETY: values of `env`; an exception of the callback goes on as an uncaught one.
    unsafe {
        let this = undefined(env);
        let result = ptr::null_mut();
        let status = sys::napi_call_function(env, this, callback, 1, &argument, result);
        if status == sys::Status::napi_pending_exception {
            let mut exception = ptr::null_mut();
            sys::napi_get_and_clear_last_exception(env, &mut exception);
            sys::napi_fatal_exception(env, exception);
        }
    };
}

fn end_listening(id: u64) {
    if !LISTENERS.remove(id) {
        return;
    }
    if let Some(wake) = TOLD.with(|told| told.borrow_mut().remove(&id)) {
        // SAFETY: nobody calls it any more; what is under way is still delivered.
        unsafe {
            sys::napi_release_threadsafe_function(wake, sys::ThreadsafeFunctionReleaseMode::release)
        };
    }
}

unsafe extern "C" fn close_pressure(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    end_listening(data(env, info));
    undefined(env)
}

/// Calls `callback` on this thread's event loop whenever use of device memory comes to `fraction` of the
/// budget from below: that which the driver states (VK_EXT_memory_budget), else the size of the largest
/// device-local heap. Looked at when memory is taken from the driver, in `memoryStats`, and now. Does not
/// keep the process alive, and outlives `destroy()`. `close()` of what comes back, or `using`, ends it.
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
        // Without a device there is nothing to look at.
        state::with(|_| Ok(()))?;
        let raw = env.raw();
        let mut wake = ptr::null_mut();
        // SAFETY: `env` is live and the callback a function of it.
        let status = unsafe {
            sys::napi_create_threadsafe_function(
                raw,
                callback.raw(),
                ptr::null_mut(),
                string(raw, "helios memory pressure"),
                0,
                1,
                ptr::null_mut(),
                None,
                ptr::null_mut(),
                Some(tell),
                &mut wake,
            )
        };
        if status != sys::Status::napi_ok {
            return Err(Error::Internal("no threadsafe function".to_owned()));
        }
        // SAFETY: just created, on this thread.
        unsafe { sys::napi_unref_threadsafe_function(raw, wake) };
        let first = TOLD.with(|told| told.borrow().is_empty());
        let function = Wake(wake);
        let id = LISTENERS.add(fraction, Box::new(move |now| function.tell(now)));
        TOLD.with(|told| told.borrow_mut().insert(id, wake));
        if first {
            // Hooks run last in, first out: before the runtime ends its functions.
            let hook = env.add_env_cleanup_hook((), |()| {
                let ids: Vec<u64> = TOLD.with(|told| told.borrow().keys().copied().collect());
                ids.into_iter().for_each(end_listening);
            });
            if hook.is_err() {
                clear_exception(raw);
            }
        }
        state::with(|context| {
            context.look_at_memory();
            Ok(())
        })?;
        Ok(Out(disposable(
            raw,
            "close",
            method(raw, close_pressure, id),
        )
        .raw))
    })
}

unsafe extern "C" fn close_watch(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    let id = data(env, info);
    // The watch is gone with its device, too.
    let _ = state::with(|context| {
        context.unwatch_nan(id);
        Ok(())
    });
    undefined(env)
}

/// Looks through the buffer for NaNs, on the device, after every submission that may have written it. The
/// first wait, read or promise after one was found throws (or rejects with) `ERR_HELIOS_NAN`, whose
/// report says what was submitted last; the watch ends with that. `options.type`: how the bits are to be
/// read, `f32` (the default), `f16` or `bf16`; whole 32-bit words are looked at. `close()` of what comes
/// back, or `using`, ends it.
#[napi(
    js_name = "watchNan",
    ts_args_type = "buffer: BufferHandle, options?: { type?: 'f32' | 'f16' | 'bf16' }",
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
        Ok(Out(
            disposable(raw, "close", method(raw, close_watch, id)).raw
        ))
    })
}
