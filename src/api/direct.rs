//! Fast paths for the most frequent calls, without the wrapper that `#[napi]` generates: it tracks borrowed class
//! instances, of which this addon has none, and that takes longer than a wait for a value already reached.
//! Documentation and types of these functions still come from `#[napi]`; only the exported function is replaced.

use std::ffi::CStr;
use std::ptr;

use napi::bindgen_prelude::Env;
use napi::sys;

use super::convert::Arg;
use super::raise::throw;
use super::unwind::guard;
use super::values::{check, made, set};
use super::{graphs, resources, work};
use crate::error::{Error, Result};

type Callback = unsafe extern "C" fn(sys::napi_env, sys::napi_callback_info) -> sys::napi_value;

/// What a call may return.
trait Answer {
    fn value(self, env: sys::napi_env) -> Result<sys::napi_value>;
}

impl Answer for () {
    fn value(self, _: sys::napi_env) -> Result<sys::napi_value> {
        // Null stands for undefined.
        Ok(ptr::null_mut())
    }
}

impl Answer for i32 {
    fn value(self, env: sys::napi_env) -> Result<sys::napi_value> {
        // SAFETY: `env` is the calling environment.
        made(env, "napi_create_int32", |value| unsafe {
            sys::napi_create_int32(env, self, value)
        })
    }
}

impl Answer for f64 {
    fn value(self, env: sys::napi_env) -> Result<sys::napi_value> {
        // SAFETY: `env` is the calling environment.
        made(env, "napi_create_double", |value| unsafe {
            sys::napi_create_double(env, self, value)
        })
    }
}

/// The arguments of a call; missing ones are undefined.
///
/// # Safety
/// `env` and `info` must be those of a running callback.
unsafe fn arguments<const N: usize>(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> Result<[Arg; N]> {
    let mut count = N;
    let mut raw = [ptr::null_mut(); N];
    // SAFETY: `raw` has room for `count` values; the others may be null.
    let status = unsafe {
        sys::napi_get_cb_info(
            env,
            info,
            &mut count,
            raw.as_mut_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    check(env, "napi_get_cb_info", status)?;
    Ok(raw.map(|value| Arg::of(env, value)))
}

/// Runs a call and converts its result for JavaScript. An error becomes a pending exception.
fn answer<const N: usize, T: Answer>(
    name: &CStr,
    env: sys::napi_env,
    info: sys::napi_callback_info,
    call: impl FnOnce(&Env, [Arg; N]) -> napi::Result<T>,
) -> sys::napi_value {
    let answered = guard(None, || {
        // SAFETY: of the callback that calls this.
        let result = match unsafe { arguments(env, info) } {
            Ok(arguments) => match call(&Env::from_raw(env), arguments) {
                Ok(answer) => answer.value(env),
                // `raise::call` has thrown already.
                Err(_) => return Some(ptr::null_mut()),
            },
            Err(error) => Err(error),
        };
        Some(result.unwrap_or_else(|error| {
            throw(env, &name.to_string_lossy(), &error, "");
            ptr::null_mut()
        }))
    });
    answered.unwrap_or_else(|| {
        // If this fails, a conversion panicked.
        guard(ptr::null_mut(), || {
            let error = Error::Internal("a panic; the standard error has its text".into());
            throw(env, &name.to_string_lossy(), &error, "");
            ptr::null_mut()
        })
    })
}

macro_rules! direct {
    ($($name:literal: $call:path, [$($argument:ident),*];)*) => {
        [$(($name, {
            unsafe extern "C" fn callback(
                env: sys::napi_env,
                info: sys::napi_callback_info,
            ) -> sys::napi_value {
                answer($name, env, info, |env, [$($argument),*]| $call(env, $($argument),*))
            }
            callback as Callback
        })),*]
    };
}

/// Replaces the functions in the addon's exports.
pub fn export(env: sys::napi_env, exports: sys::napi_value) -> Result<()> {
    let calls: [(&CStr, Callback); 10] = direct! {
        c"createBuffer": resources::create_buffer, [bytes, visible, options];
        c"destroyBuffer": resources::destroy_buffer, [handle];
        c"uploadBuffer": resources::upload_buffer, [handle, data];
        c"uploadAsync": resources::upload_async, [handle, data, offset];
        c"dispatch": work::dispatch, [pipeline, buffers, x, y, z, push];
        c"batchDispatch": work::batch_dispatch, [pipeline, buffers, x, y, z, push, mask];
        c"batchExecuteAll": work::batch_execute_all, [packed, count];
        c"graphLaunch": graphs::graph_launch, [handle];
        c"waitTimeline": work::wait_timeline, [value];
        c"getCompleted": work::get_completed, [];
    };
    for (name, callback) in calls {
        // SAFETY: `env` is live, the name ends with a nul, and the callback is a function of this library.
        let function = made(env, "napi_create_function", |value| unsafe {
            let (text, length) = (name.as_ptr(), name.count_bytes() as isize);
            sys::napi_create_function(env, text, length, Some(callback), ptr::null_mut(), value)
        });
        set(env, exports, &name.to_string_lossy(), function)?;
    }
    Ok(())
}
