//! Conversions between JS values and Rust ones. Raw Node-API: these run on the hot path, and an
//! error must name the argument.

use std::ffi::{CString, c_char};
use std::ptr;

use napi::bindgen_prelude::{FromNapiValue, ToNapiValue, TypeName, ValidateNapiValue};
use napi::{ValueType, sys};

use crate::error::{Class, Error, Result};

/// A JS argument as it came. Handed to the functions below together with its name.
#[derive(Clone, Copy)]
pub struct Arg {
    env: sys::napi_env,
    raw: sys::napi_value,
}

impl FromNapiValue for Arg {
    unsafe fn from_napi_value(env: sys::napi_env, raw: sys::napi_value) -> napi::Result<Self> {
        Ok(Self { env, raw })
    }
}

impl TypeName for Arg {
    fn type_name() -> &'static str {
        "unknown"
    }
    fn value_type() -> ValueType {
        ValueType::Unknown
    }
}

impl ValidateNapiValue for Arg {
    unsafe fn validate(_: sys::napi_env, _: sys::napi_value) -> napi::Result<sys::napi_value> {
        Ok(ptr::null_mut())
    }
}

/// A JS value made here, on its way out.
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

pub fn string(env: sys::napi_env, text: &str) -> sys::napi_value {
    let mut value = ptr::null_mut();
    // SAFETY: pointer and length describe `text`.
    unsafe {
        sys::napi_create_string_utf8(
            env,
            text.as_ptr().cast::<c_char>(),
            text.len() as isize,
            &mut value,
        )
    };
    value
}

pub fn number(env: sys::napi_env, number: f64) -> sys::napi_value {
    let mut value = ptr::null_mut();
    // SAFETY: `env` is live, here and in the functions below.
    unsafe { sys::napi_create_double(env, number, &mut value) };
    value
}

pub fn boolean(env: sys::napi_env, on: bool) -> sys::napi_value {
    let mut value = ptr::null_mut();
    // SAFETY: as above.
    unsafe { sys::napi_get_boolean(env, on, &mut value) };
    value
}

pub fn undefined(env: sys::napi_env) -> sys::napi_value {
    let mut value = ptr::null_mut();
    // SAFETY: as above.
    unsafe { sys::napi_get_undefined(env, &mut value) };
    value
}

/// Sets a property; names are literals of this crate.
pub fn set(env: sys::napi_env, object: sys::napi_value, name: &str, value: sys::napi_value) {
    let Ok(name) = CString::new(name) else {
        return;
    };
    // SAFETY: `object` and `value` are of `env`, the name is nul-terminated.
    unsafe { sys::napi_set_named_property(env, object, name.as_ptr(), value) };
}

/// A plain object, built property by property.
pub struct Object {
    env: sys::napi_env,
    pub raw: sys::napi_value,
}

impl Object {
    pub fn new(env: sys::napi_env) -> Self {
        let mut raw = ptr::null_mut();
        // SAFETY: `env` is live.
        unsafe { sys::napi_create_object(env, &mut raw) };
        Self { env, raw }
    }

    pub fn value(self, name: &str, value: sys::napi_value) -> Self {
        set(self.env, self.raw, name, value);
        self
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

pub fn array(env: sys::napi_env, items: &[sys::napi_value]) -> sys::napi_value {
    let mut list = ptr::null_mut();
    // SAFETY: `env` is live; `list` is the array made here.
    unsafe {
        sys::napi_create_array_with_length(env, items.len(), &mut list);
        for (i, item) in items.iter().enumerate() {
            sys::napi_set_element(env, list, i as u32, *item);
        }
    }
    list
}

/// A new ArrayBuffer of `bytes` bytes and where they lie.
pub fn array_buffer(env: sys::napi_env, bytes: usize) -> Result<(sys::napi_value, *mut u8)> {
    let mut data = ptr::null_mut();
    let mut value = ptr::null_mut();
    // SAFETY: `env` is live.
    let status = unsafe { sys::napi_create_arraybuffer(env, bytes, &mut data, &mut value) };
    if status != sys::Status::napi_ok {
        clear_exception(env);
        if !runs(env) {
            return Err(Error::Aborted(
                "the JavaScript environment is ending".to_owned(),
            ));
        }
        return Err(Error::OutOfMemory {
            what: "ArrayBuffer",
            bytes: bytes as u64,
            space: "host",
            hint: String::new(),
        });
    }
    Ok((value, data.cast()))
}

/// Whether JavaScript can run: no longer in an environment that is being ended, where most calls of
/// the runtime fail. No exception may be pending.
pub fn runs(env: sys::napi_env) -> bool {
    let mut value = ptr::null_mut();
    // SAFETY: `env` is live. Of the calls that fail then, this one asks for the least.
    unsafe { sys::napi_coerce_to_bool(env, undefined(env), &mut value) == sys::Status::napi_ok }
}

pub fn clear_exception(env: sys::napi_env) {
    let mut exception = ptr::null_mut();
    // SAFETY: `env` is live.
    unsafe { sys::napi_get_and_clear_last_exception(env, &mut exception) };
}

pub fn typed_array(
    env: sys::napi_env,
    kind: sys::napi_typedarray_type,
    length: usize,
    buffer: sys::napi_value,
) -> sys::napi_value {
    let mut value = ptr::null_mut();
    // SAFETY: `buffer` is an ArrayBuffer of `env` with room for `length` elements from its start.
    unsafe { sys::napi_create_typedarray(env, kind, length, buffer, 0, &mut value) };
    value
}

/// Bytes of JS memory, valid until control returns to JS. Read and written only through the pointer:
/// another worker may share them.
#[derive(Clone, Copy)]
pub struct Bytes {
    pub data: *mut u8,
    pub len: usize,
}

impl Bytes {
    /// # Safety
    /// Not to be kept beyond the call, nor while JS runs.
    pub unsafe fn slice<'a>(self) -> &'a [u8] {
        if self.len == 0 || self.data.is_null() {
            return &[];
        }
        // SAFETY: the engine gave pointer and length; the caller keeps to the call.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

impl Arg {
    pub fn of(env: sys::napi_env, raw: sys::napi_value) -> Self {
        Self { env, raw }
    }

    pub fn raw(self) -> sys::napi_value {
        self.raw
    }

    pub fn kind(self) -> ValueType {
        let mut kind = 0;
        // SAFETY: the value is of the calling environment, here and below.
        unsafe { sys::napi_typeof(self.env, self.raw, &mut kind) };
        ValueType::from(kind)
    }

    pub fn missing(self) -> bool {
        matches!(self.kind(), ValueType::Undefined | ValueType::Null)
    }

    /// The value as a message shows it.
    pub fn describe(self) -> String {
        match self.kind() {
            ValueType::Undefined => "undefined".to_owned(),
            ValueType::Null => "null".to_owned(),
            ValueType::Boolean | ValueType::Number | ValueType::BigInt => self.text(),
            ValueType::String => {
                let text = self.text();
                let short: String = text.chars().take(40).collect();
                format!(
                    "{short:?}{}",
                    if short.len() < text.len() { "…" } else { "" }
                )
            }
            ValueType::Symbol => "a symbol".to_owned(),
            ValueType::Function => "a function".to_owned(),
            _ => {
                let mut is = false;
                // SAFETY: as above.
                unsafe { sys::napi_is_array(self.env, self.raw, &mut is) };
                if is {
                    return "an array".to_owned();
                }
                // SAFETY: as above.
                unsafe { sys::napi_is_typedarray(self.env, self.raw, &mut is) };
                if is { "a typed array" } else { "an object" }.to_owned()
            }
        }
    }

    /// The text of a primitive; coercing one runs no JS.
    fn text(self) -> String {
        let mut value = self.raw;
        // SAFETY: as above.
        if unsafe { sys::napi_coerce_to_string(self.env, self.raw, &mut value) }
            != sys::Status::napi_ok
        {
            clear_exception(self.env);
            return "?".to_owned();
        }
        let mut length = 0;
        // SAFETY: a null buffer asks for the length.
        unsafe {
            sys::napi_get_value_string_utf8(self.env, value, ptr::null_mut(), 0, &mut length)
        };
        let mut bytes = vec![0u8; length + 1];
        // SAFETY: `bytes` has room for the text and its nul.
        unsafe {
            sys::napi_get_value_string_utf8(
                self.env,
                value,
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                &mut length,
            )
        };
        bytes.truncate(length);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn wrong(self, name: &str, expected: &str) -> Error {
        Error::Type {
            argument: name.to_owned(),
            expected: expected.to_owned(),
            value: self.describe(),
        }
    }

    fn double(self) -> Option<f64> {
        let mut number = 0.0;
        // SAFETY: as above; a value of another type leaves a status, no exception.
        let status = unsafe { sys::napi_get_value_double(self.env, self.raw, &mut number) };
        (status == sys::Status::napi_ok).then_some(number)
    }

    pub fn float(self, name: &str) -> Result<f64> {
        self.double().ok_or_else(|| self.wrong(name, "a number"))
    }

    /// A handle: an integer from 0 to 2^31 - 1.
    pub fn handle(self, name: &str, kind: &'static str) -> Result<i32> {
        let wrong = |class| Error::NoHandle {
            argument: name.to_owned(),
            kind,
            value: self.describe(),
            class,
        };
        let number = self.double().ok_or_else(|| wrong(Class::TypeError))?;
        let handle = number as i32;
        if f64::from(handle) != number || handle < 0 {
            return Err(wrong(Class::RangeError));
        }
        Ok(handle)
    }

    /// An integer from 0 to `most`.
    pub fn integer(self, name: &str, most: u64) -> Result<u64> {
        let number = self.double().ok_or_else(|| self.wrong(name, "a number"))?;
        if !(number >= 0.0 && number <= most as f64) || number.fract() != 0.0 {
            return Err(Error::range(
                name,
                format!("must be an integer from 0 to {most}"),
                self.describe(),
            ));
        }
        Ok(number as u64)
    }

    pub fn u32(self, name: &str) -> Result<u32> {
        self.integer(name, u64::from(u32::MAX)).map(|n| n as u32)
    }

    /// A size or timeline value: an integer that a JS number holds exactly.
    pub fn size(self, name: &str) -> Result<u64> {
        self.integer(name, (1 << 53) - 1)
    }

    pub fn u32_or(self, name: &str, default: u32) -> Result<u32> {
        // The usual case first: the type is asked for only when there is no number.
        match self.double() {
            None if self.kind() == ValueType::Undefined => Ok(default),
            _ => self.u32(name),
        }
    }

    pub fn size_or(self, name: &str, default: u64) -> Result<u64> {
        match self.kind() {
            ValueType::Undefined => Ok(default),
            _ => self.size(name),
        }
    }

    /// A flag as 0, 1, false, true or nothing.
    pub fn flag_or(self, name: &str, default: bool) -> Result<bool> {
        if let Some(number) = self.double() {
            return Ok(number != 0.0);
        }
        match self.kind() {
            ValueType::Undefined => Ok(default),
            ValueType::Boolean => {
                let mut on = false;
                // SAFETY: as above.
                unsafe { sys::napi_get_value_bool(self.env, self.raw, &mut on) };
                Ok(on)
            }
            _ => Err(self.wrong(name, "a boolean, 0 or 1")),
        }
    }

    pub fn string(self, name: &str) -> Result<String> {
        match self.kind() {
            ValueType::String => Ok(self.text()),
            _ => Err(self.wrong(name, "a string")),
        }
    }

    /// A property of an options object.
    pub fn property(self, name: &str) -> Result<Self> {
        let key = CString::new(name).unwrap_or_default();
        let mut raw = ptr::null_mut();
        // SAFETY: as above; the name is nul-terminated.
        let status =
            unsafe { sys::napi_get_named_property(self.env, self.raw, key.as_ptr(), &mut raw) };
        if status != sys::Status::napi_ok {
            clear_exception(self.env);
            return Err(Error::Type {
                argument: format!("options.{name}"),
                expected: "readable".to_owned(),
                value: "a property that throws".to_owned(),
            });
        }
        Ok(Self { env: self.env, raw })
    }

    fn detached(self, buffer: sys::napi_value) -> bool {
        let mut detached = false;
        // SAFETY: as above.
        unsafe { sys::napi_is_detached_arraybuffer(self.env, buffer, &mut detached) };
        detached
    }

    /// The bytes of a TypedArray, DataView or ArrayBuffer.
    pub fn bytes(self, name: &str) -> Result<Bytes> {
        const EXPECTED: &str = "a TypedArray, a DataView or an ArrayBuffer";
        let mut data = ptr::null_mut();
        let mut is = false;
        // SAFETY: as above.
        unsafe { sys::napi_is_typedarray(self.env, self.raw, &mut is) };
        if is {
            let mut kind = -1;
            let mut length = 0;
            let mut buffer = ptr::null_mut();
            let mut offset = 0;
            // SAFETY: the value is a typed array.
            unsafe {
                sys::napi_get_typedarray_info(
                    self.env,
                    self.raw,
                    &mut kind,
                    &mut length,
                    &mut data,
                    &mut buffer,
                    &mut offset,
                )
            };
            // Views of detached memory are empty, so others need no further look.
            if length == 0 && self.detached(buffer) {
                return Err(Error::Type {
                    argument: name.to_owned(),
                    expected: EXPECTED.to_owned(),
                    value: "a view of a detached ArrayBuffer".to_owned(),
                });
            }
            let len = match element_size(kind) {
                Some(size) => length * size,
                // A kind that this Node-API does not name: Float16Array. Never beyond its memory,
                // whatever else a runtime may add.
                None => {
                    let mut whole = 0;
                    // SAFETY: the buffer of a typed array; a shared one leaves `whole` at 0.
                    unsafe {
                        sys::napi_get_arraybuffer_info(
                            self.env,
                            buffer,
                            ptr::null_mut(),
                            &mut whole,
                        )
                    };
                    (length * 2).min(whole.saturating_sub(offset))
                }
            };
            return Ok(Bytes {
                data: data.cast(),
                len,
            });
        }
        // SAFETY: as above.
        unsafe { sys::napi_is_arraybuffer(self.env, self.raw, &mut is) };
        if is {
            if self.detached(self.raw) {
                return Err(Error::Type {
                    argument: name.to_owned(),
                    expected: EXPECTED.to_owned(),
                    value: "a detached ArrayBuffer".to_owned(),
                });
            }
            let mut len = 0;
            // SAFETY: the value is an ArrayBuffer.
            unsafe { sys::napi_get_arraybuffer_info(self.env, self.raw, &mut data, &mut len) };
            return Ok(Bytes {
                data: data.cast(),
                len,
            });
        }
        // SAFETY: as above.
        unsafe { sys::napi_is_dataview(self.env, self.raw, &mut is) };
        if is {
            let mut len = 0;
            let mut buffer = ptr::null_mut();
            // SAFETY: the value is a DataView.
            let status = unsafe {
                sys::napi_get_dataview_info(
                    self.env,
                    self.raw,
                    &mut len,
                    &mut data,
                    &mut buffer,
                    ptr::null_mut(),
                )
            };
            if status != sys::Status::napi_ok || self.detached(buffer) {
                clear_exception(self.env);
                return Err(Error::Type {
                    argument: name.to_owned(),
                    expected: EXPECTED.to_owned(),
                    value: "a DataView of a detached ArrayBuffer".to_owned(),
                });
            }
            return Ok(Bytes {
                data: data.cast(),
                len,
            });
        }
        Err(self.wrong(name, EXPECTED))
    }

    /// What [`Self::bytes`] takes, for an upload; a typed array of very few numbers is copied into `space`. A new one
    /// of up to 64 bytes has no memory of its own before somebody asks for it, and V8 takes that for an occasion to
    /// collect garbage, for as long as a large upload takes.
    pub fn upload(self, name: &str, space: &mut [u8; 4 * FEW]) -> Result<Bytes> {
        match self.few(space) {
            Some(len) => Ok(Bytes {
                data: space.as_mut_ptr(),
                len,
            }),
            None => self.bytes(name),
        }
    }

    /// The bytes of up to [`FEW`] 32-bit numbers, one by one; none for anything else, and for NaNs, whose bits may not
    /// come through.
    fn few(self, space: &mut [u8; 4 * FEW]) -> Option<usize> {
        use sys::TypedarrayType as T;
        let (kind, length) = self.typed_array()?;
        if !(1..=FEW).contains(&length)
            || !matches!(kind, T::float32_array | T::int32_array | T::uint32_array)
        {
            return None;
        }
        for (i, word) in space.chunks_exact_mut(4).enumerate().take(length) {
            let mut raw = ptr::null_mut();
            let mut number = f64::NAN;
            // SAFETY: as above; the elements of a typed array are numbers, and reading them runs no JS.
            unsafe {
                sys::napi_get_element(self.env, self.raw, i as u32, &mut raw);
                sys::napi_get_value_double(self.env, raw, &mut number);
            }
            let bits = match kind {
                T::float32_array => (number as f32).to_bits(),
                T::int32_array => number as i32 as u32,
                _ => number as u32,
            };
            if number.is_nan() {
                return None;
            }
            word.copy_from_slice(&bits.to_ne_bytes());
        }
        Some(4 * length)
    }

    /// Kind and elements of a typed array, whose memory is not asked for; none for anything else.
    fn typed_array(self) -> Option<(sys::napi_typedarray_type, usize)> {
        let mut is = false;
        // SAFETY: as above.
        unsafe { sys::napi_is_typedarray(self.env, self.raw, &mut is) };
        if !is {
            return None;
        }
        let mut kind = -1;
        let mut length = 0;
        // SAFETY: the value is a typed array.
        unsafe {
            sys::napi_get_typedarray_info(
                self.env,
                self.raw,
                &mut kind,
                &mut length,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        Some((kind, length))
    }

    /// Push constants: bytes, or nothing.
    pub fn push(self, name: &str) -> Result<Bytes> {
        if self.missing() {
            return Ok(Bytes {
                data: ptr::null_mut(),
                len: 0,
            });
        }
        self.bytes(name)
    }

    /// Words of a Uint32Array (or any other view of whole words).
    pub fn words(self, name: &str) -> Result<Vec<u32>> {
        let bytes = self.bytes(name)?;
        if bytes.len % 4 != 0 {
            return Err(Error::range(
                name,
                "must hold whole 32-bit words",
                format!("{} bytes", bytes.len),
            ));
        }
        // SAFETY: copied before control returns to JS.
        let bytes = unsafe { bytes.slice() };
        Ok(bytes
            .chunks_exact(4)
            .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
            .collect())
    }

    /// Buffer handles of an array (or an Int32Array) into `out`; how many there are.
    pub fn handles(self, name: &str, out: &mut [i32]) -> Result<usize> {
        let mut is = false;
        // SAFETY: as above.
        unsafe { sys::napi_is_array(self.env, self.raw, &mut is) };
        let mut length = 0u32;
        if is {
            // SAFETY: the value is an array.
            unsafe { sys::napi_get_array_length(self.env, self.raw, &mut length) };
        } else {
            let Some((_, count)) = self.typed_array() else {
                return Err(self.wrong(name, "an array of buffer handles"));
            };
            length = u32::try_from(count).unwrap_or(u32::MAX);
        }
        if length as usize > out.len() {
            return Err(Error::range(
                name,
                format!("must hold at most {} buffers", out.len()),
                length,
            ));
        }
        for (i, slot) in out.iter_mut().enumerate().take(length as usize) {
            let mut raw = ptr::null_mut();
            // SAFETY: as above; a getter that throws leaves an exception, cleared below.
            let status = unsafe { sys::napi_get_element(self.env, self.raw, i as u32, &mut raw) };
            if status != sys::Status::napi_ok {
                clear_exception(self.env);
                return Err(self.wrong(name, "an array of buffer handles"));
            }
            let item = Self { env: self.env, raw };
            let mut number = 0.0;
            // SAFETY: as above.
            let status = unsafe { sys::napi_get_value_double(self.env, raw, &mut number) };
            let handle = number as i32;
            if status != sys::Status::napi_ok || f64::from(handle) != number || handle < 0 {
                return item.handle(&format!("{name}[{i}]"), "buffer").map(|_| 0);
            }
            *slot = handle;
        }
        Ok(length as usize)
    }
}

/// Elements of a typed array that are read one by one sooner than through its memory.
pub const FEW: usize = 4;

fn element_size(kind: sys::napi_typedarray_type) -> Option<usize> {
    use sys::TypedarrayType as T;
    match kind {
        T::int8_array | T::uint8_array | T::uint8_clamped_array => Some(1),
        T::int16_array | T::uint16_array => Some(2),
        T::int32_array | T::uint32_array | T::float32_array => Some(4),
        T::float64_array | T::bigint64_array | T::biguint64_array => Some(8),
        _ => None,
    }
}
