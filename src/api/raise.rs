//! Errors and panics of a call become JS exceptions.

use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use napi::{Env, Status, sys};

use super::convert::{Arg, set, string};
use super::state;
use crate::error::{Class, Error, Result};
use crate::profile;

/// Runs the body of the JS call `name`; an error or a panic is thrown with the call's name in front.
pub fn call<T>(env: &Env, name: &'static str, body: impl FnOnce() -> Result<T>) -> napi::Result<T> {
    let since = profile::begin();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Err(Error::Internal(format!("panic: {text}")))
    });
    if let Some(since) = since {
        profile::called(name, since);
    }
    let (result, note) = match (result, state::validation_messages()) {
        (Ok(_), Some(text)) => (Err(Error::Validation(text)), String::new()),
        (result, Some(text)) => (result, format!("\nVulkan validation: {text}")),
        (result, None) => (result, String::new()),
    };
    result.map_err(|error| {
        throw(env, name, &error, &note);
        napi::Error::new(Status::PendingException, String::new())
    })
}

/// The JS stack of the present call.
pub fn stack(env: sys::napi_env) -> String {
    let (mut object, mut text) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: `env` is the calling environment; the error is an object of it.
    let status = unsafe {
        sys::napi_create_error(env, ptr::null_mut(), string(env, ""), &mut object);
        sys::napi_get_named_property(env, object, c"stack".as_ptr(), &mut text)
    };
    if status != sys::Status::napi_ok {
        return String::new();
    }
    Arg::of(env, text).string("stack").unwrap_or_default()
}

/// Builds the JS error of `error`: class, `code`, `call`, `argument`, `value`, `report`. `note` ends the message.
pub fn build(env: sys::napi_env, name: &str, error: &Error, note: &str) -> sys::napi_value {
    let code = string(env, error.code().as_str());
    let report = state::report(name, error, || stack(env)).map(|path| path.display().to_string());
    let see = report
        .as_ref()
        .map_or(String::new(), |path| format!(" (report: {path})"));
    let message = string(env, &format!("{name}: {error}{see}{note}"));
    let mut object = ptr::null_mut();
    // SAFETY: `env` is the calling environment, `code` and `message` are strings of it.
    unsafe {
        match error.class() {
            Class::Error => sys::napi_create_error(env, code, message, &mut object),
            Class::TypeError => sys::napi_create_type_error(env, code, message, &mut object),
            Class::RangeError => sys::napi_create_range_error(env, code, message, &mut object),
        };
    }
    if !object.is_null() {
        set(env, object, "call", string(env, name));
        if let Some(report) = &report {
            set(env, object, "report", string(env, report));
        }
        if let Some(argument) = error.argument() {
            set(env, object, "argument", string(env, argument));
        }
        if let Some(value) = error.value() {
            set(env, object, "value", string(env, value));
        }
    }
    object
}

fn throw(env: &Env, name: &str, error: &Error, note: &str) {
    let object = build(env.raw(), name, error, note);
    if object.is_null() {
        let text = CString::new(format!("{name}: {error}").replace('\0', " ")).unwrap_or_default();
        // SAFETY: the string is nul-terminated and `env` live.
        unsafe { sys::napi_throw_error(env.raw(), ptr::null(), text.as_ptr()) };
        return;
    }
    // SAFETY: `object` is an error object of `env`.
    unsafe { sys::napi_throw(env.raw(), object) };
}
