//! Makes values for JavaScript. Every status of the runtime is checked: a failure is an error with the name of the
//! Node-API call, or the exception that the call left pending.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use napi::bindgen_prelude::{ToNapiValue, TypeName};
use napi::{ValueType, sys};

use crate::error::{Error, Result};

pub type Made = Result<sys::napi_value>;

/// A JS value to be returned to the caller.
pub struct Out(pub sys::napi_value);

impl ToNapiValue for Out {
    unsafe fn to_napi_value(_: sys::napi_env, value: Self) -> napi::Result<sys::napi_value> {
        Ok(value.0)
    }
}

impl TypeName for Out {
    fn type_name() -> &'static str {
        "unknown"
    }
    fn value_type() -> ValueType {
        ValueType::Unknown
    }
}

/// Turns a failed status of the Node-API call `call` into an error.
#[inline]
pub fn check(env: sys::napi_env, call: &str, status: sys::napi_status) -> Result<()> {
    match status {
        sys::Status::napi_ok => Ok(()),
        status => Err(refused(env, call, status)),
    }
}

/// The value that the Node-API call `call` writes.
#[inline]
pub fn made(
    env: sys::napi_env,
    call: &str,
    make: impl FnOnce(*mut sys::napi_value) -> sys::napi_status,
) -> Made {
    let mut value = ptr::null_mut();
    check(env, call, make(&mut value)).map(|()| value)
}

/// The error of a Node-API call that should not fail. An exception that JavaScript threw in it stays pending and
/// replaces the error in [`super::raise::build`].
#[cold]
pub fn refused(env: sys::napi_env, call: &str, status: sys::napi_status) -> Error {
    if !pending(env) && !runs(env) {
        return ending();
    }
    Error::Internal(format!("{call} failed with status {status}"))
}

pub fn ending() -> Error {
    Error::Aborted("the JavaScript environment is ending".to_owned())
}

/// Whether JavaScript can still run; not in an environment that is being ended, where most calls of the runtime fail.
/// No exception may be pending.
pub fn runs(env: sys::napi_env) -> bool {
    let (mut undefined, mut value) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: `env` is live. Of the calls that fail then, this one asks for the least.
    unsafe {
        sys::napi_get_undefined(env, &mut undefined) == sys::Status::napi_ok
            && sys::napi_coerce_to_bool(env, undefined, &mut value) == sys::Status::napi_ok
    }
}

/// Fails with [`ending`] in an environment that is being ended, as `terminate()` does to a worker.
pub fn still_runs(env: sys::napi_env) -> Result<()> {
    runs(env).then_some(()).ok_or_else(ending)
}

fn pending(env: sys::napi_env) -> bool {
    let mut pending = false;
    // SAFETY: `env` is live.
    let status = unsafe { sys::napi_is_exception_pending(env, &mut pending) };
    status == sys::Status::napi_ok && pending
}

/// Takes the exception that a call of the runtime left pending.
pub fn exception(env: sys::napi_env) -> Option<sys::napi_value> {
    let mut exception = ptr::null_mut();
    // SAFETY: `env` is live.
    let taken = pending(env)
        && unsafe { sys::napi_get_and_clear_last_exception(env, &mut exception) }
            == sys::Status::napi_ok;
    taken.then_some(exception)
}

pub fn clear_exception(env: sys::napi_env) {
    let mut exception = ptr::null_mut();
    // SAFETY: `env` is live. Where this fails no exception is kept: the environment is ending.
    let _ = unsafe { sys::napi_get_and_clear_last_exception(env, &mut exception) };
}

pub fn string(env: sys::napi_env, text: &str) -> Made {
    let (data, bytes) = (text.as_ptr().cast::<c_char>(), text.len() as isize);
    made(env, "napi_create_string_utf8", |value| {
        // SAFETY: pointer and length describe `text`.
        unsafe { sys::napi_create_string_utf8(env, data, bytes, value) }
    })
}

pub fn number(env: sys::napi_env, number: f64) -> Made {
    // SAFETY: `env` is live, here and in the functions below.
    let make = |value| unsafe { sys::napi_create_double(env, number, value) };
    made(env, "napi_create_double", make)
}

pub fn boolean(env: sys::napi_env, on: bool) -> Made {
    // SAFETY: as above.
    let make = |value| unsafe { sys::napi_get_boolean(env, on, value) };
    made(env, "napi_get_boolean", make)
}

pub fn undefined(env: sys::napi_env) -> Made {
    // SAFETY: as above.
    let make = |value| unsafe { sys::napi_get_undefined(env, value) };
    made(env, "napi_get_undefined", make)
}

pub fn null(env: sys::napi_env) -> Made {
    // SAFETY: as above.
    let make = |value| unsafe { sys::napi_get_null(env, value) };
    made(env, "napi_get_null", make)
}

pub fn array(env: sys::napi_env, items: impl IntoIterator<Item = Made>) -> Made {
    // SAFETY: as above.
    let make = |value| unsafe { sys::napi_create_array(env, value) };
    let list = made(env, "napi_create_array", make)?;
    let keyed = |(i, item): (usize, Made)| Ok((string(env, &i.to_string())?, item?));
    define(env, list, items.into_iter().enumerate().map(keyed))?;
    Ok(list)
}

/// Defines an own property of an object.
pub fn set(env: sys::napi_env, object: sys::napi_value, name: &str, value: Made) -> Result<()> {
    let property = string(env, name).and_then(|key| Ok((key, value?)));
    define(env, object, [property])
}

/// Defined, not assigned: a setter on a prototype could call the addon while the device is locked.
fn define(
    env: sys::napi_env,
    object: sys::napi_value,
    properties: impl IntoIterator<Item = Result<(sys::napi_value, sys::napi_value)>>,
) -> Result<()> {
    use sys::PropertyAttributes as P;
    let described = properties.into_iter().map(|property| {
        property.map(|(name, value)| sys::napi_property_descriptor {
            utf8name: ptr::null(),
            name,
            method: None,
            getter: None,
            setter: None,
            value,
            attributes: P::writable | P::enumerable | P::configurable,
            data: ptr::null_mut(),
        })
    });
    let described = described.collect::<Result<Vec<_>>>()?;
    // SAFETY: `object`, the names and the values are of `env`; the descriptors live until the call returns.
    let status =
        unsafe { sys::napi_define_properties(env, object, described.len(), described.as_ptr()) };
    check(env, "napi_define_properties", status)
}

/// A plain object, built property by property. [`Self::done`] returns the first error.
pub struct Object {
    env: sys::napi_env,
    properties: Vec<Result<(sys::napi_value, sys::napi_value)>>,
}

impl Object {
    pub fn new(env: sys::napi_env) -> Self {
        Self {
            env,
            properties: Vec::new(),
        }
    }

    pub fn done(self) -> Made {
        // SAFETY: `env` is live.
        let make = |value| unsafe { sys::napi_create_object(self.env, value) };
        let object = made(self.env, "napi_create_object", make)?;
        define(self.env, object, self.properties)?;
        Ok(object)
    }

    pub fn keyed(mut self, key: Made, value: Made) -> Self {
        self.properties.push(key.and_then(|key| Ok((key, value?))));
        self
    }

    pub fn value(self, name: &str, value: Made) -> Self {
        let key = string(self.env, name);
        self.keyed(key, value)
    }

    pub fn number(self, name: &str, n: f64) -> Self {
        let value = number(self.env, n);
        self.value(name, value)
    }

    pub fn integer(self, name: &str, n: u64) -> Self {
        self.number(name, n as f64)
    }

    pub fn string(self, name: &str, text: &str) -> Self {
        let value = string(self.env, text);
        self.value(name, value)
    }

    pub fn boolean(self, name: &str, on: bool) -> Self {
        let value = boolean(self.env, on);
        self.value(name, value)
    }
}

pub type Callback = unsafe extern "C" fn(sys::napi_env, sys::napi_callback_info) -> sys::napi_value;

/// A function that carries a number.
pub fn function(env: sys::napi_env, body: Callback, data: u64) -> Made {
    let data = data as *mut c_void;
    made(env, "napi_create_function", |value| {
        // SAFETY: `env` is live; the number travels in place of a pointer and is none.
        unsafe { sys::napi_create_function(env, ptr::null(), 0, Some(body), data, value) }
    })
}

/// The number given to [`function`] or to a property's descriptor.
pub fn data(env: sys::napi_env, info: sys::napi_callback_info) -> Option<u64> {
    let mut data = ptr::null_mut();
    let none = ptr::null_mut();
    // SAFETY: the runtime calls with its `info`; only the data is asked for.
    let status =
        unsafe { sys::napi_get_cb_info(env, info, none, none.cast(), none.cast(), &mut data) };
    (status == sys::Status::napi_ok).then_some(data as u64)
}

/// A property of a caller's object; undefined if its getter throws, or if it is not an object.
pub fn property(env: sys::napi_env, object: sys::napi_value, name: &CStr) -> Made {
    let mut value = ptr::null_mut();
    // SAFETY: `object` is of `env`; the name is nul-terminated.
    let status = unsafe { sys::napi_get_named_property(env, object, name.as_ptr(), &mut value) };
    if status != sys::Status::napi_ok {
        clear_exception(env);
        return undefined(env);
    }
    Ok(value)
}
