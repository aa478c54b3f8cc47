//! Turns errors and panics of a call into JS exceptions.

use std::ptr;

use napi::{Env, Status, sys};

use super::convert::Arg;
use super::state;
use super::unwind::caught;
use super::values::{Made, exception, made, number, property, set, string, undefined};
use crate::error::{Class, Error, Result};
use crate::observe::profile;

/// Runs the body of the JS call `name`. An error or a panic is thrown with that name in front.
pub fn call<T>(env: &Env, name: &'static str, body: impl FnOnce() -> Result<T>) -> napi::Result<T> {
    let since = profile::begin();
    // Panics on the device are caught further down: one that arrives here came from arguments or results.
    let result = caught(body);
    if let Some(since) = since {
        profile::called(name, since);
    }
    let (result, note) = match (result, state::validation_messages()) {
        (Ok(_), Some(text)) => (Err(Error::Validation(text)), String::new()),
        (result, Some(text)) => (result, format!("\nVulkan validation: {text}")),
        (result, None) => (result, String::new()),
    };
    result.map_err(|error| {
        throw(env.raw(), name, &error, &note);
        napi::Error::new(Status::PendingException, String::new())
    })
}

/// The JS stack of the present call. Runs JavaScript if there is an `Error.prepareStackTrace`.
pub fn stack(env: sys::napi_env) -> String {
    let object = string(env, "").and_then(|empty| {
        // SAFETY: `env` is the calling environment, the message a string of it.
        let make = |object| unsafe { sys::napi_create_error(env, ptr::null_mut(), empty, object) };
        made(env, "napi_create_error", make)
    });
    object.map_or_else(|_| String::new(), |object| stack_of(env, object))
}

/// The `stack` of an error object.
pub fn stack_of(env: sys::napi_env, error: sys::napi_value) -> String {
    property(env, error, c"stack")
        .and_then(|text| Arg::of(env, text).string("stack"))
        .unwrap_or_default()
}

/// Builds the JS error of `error`: class, `code`, `call`, `argument`, `value`, `report`; `note` ends the message. If
/// JavaScript threw something in the meantime, that is the result instead; undefined if the runtime makes no more
/// values.
pub fn build(env: sys::napi_env, name: &str, error: &Error, note: &str) -> sys::napi_value {
    exception(env)
        .or_else(|| make(env, name, error, note).ok())
        .or_else(|| exception(env))
        .unwrap_or_else(|| undefined(env).unwrap_or(ptr::null_mut()))
}

/// The JS error of a failure that is reported rather than thrown.
pub fn raised(env: sys::napi_env, name: &str, error: &Error) -> Made {
    make(env, name, error, "")
}

fn make(env: sys::napi_env, name: &str, error: &Error, note: &str) -> Made {
    let code = string(env, error.code().as_str())?;
    let report = state::report(name, error, || stack(env)).map(|path| path.display().to_string());
    let see = report
        .as_ref()
        .map_or(String::new(), |path| format!(" (report: {path})"));
    let message = string(env, &format!("{name}: {error}{see}{note}"))?;
    let create = match error.class() {
        Class::Error => sys::napi_create_error,
        Class::TypeError => sys::napi_create_type_error,
        Class::RangeError => sys::napi_create_range_error,
    };
    // SAFETY: `env` is the calling environment, `code` and `message` are strings of it.
    let create = |object| unsafe { create(env, code, message, object) };
    let object = made(env, "napi_create_error", create)?;
    let fields = [
        ("call", Some(name)),
        ("report", report.as_deref()),
        ("argument", error.argument()),
        ("value", error.value()),
    ];
    for (field, text) in fields {
        if let Some(text) = text {
            set(env, object, field, string(env, text))?;
        }
    }
    if let Some(rank) = error.rank() {
        set(env, object, "rank", number(env, rank.into()))?;
    }
    Ok(object)
}

/// Throws the JS error of `error`.
pub fn throw(env: sys::napi_env, name: &str, error: &Error, note: &str) {
    let object = build(env, name, error, note);
    // SAFETY: `object` is a value of `env`. A runtime that refuses it is ending: nobody would see it.
    let _ = unsafe { sys::napi_throw(env, object) };
}
