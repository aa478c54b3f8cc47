//! Converts JS arguments to Rust values. Uses raw Node-API, because this is the hot path and each error must name its
//! argument.

use std::ffi::CString;
use std::ops::RangeInclusive;
use std::ptr;

use napi::bindgen_prelude::{FromNapiValue, TypeName, ValidateNapiValue};
use napi::{ValueType, sys};

use super::values::{check, clear_exception};
use crate::error::{Class, Error, Result};
use crate::memory::bulk::Source;
use crate::plan::decode::BindingRange;

/// A JS argument as it came. The functions below get it together with its name.
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

/// Whether an ArrayBuffer is detached; false if the runtime cannot say.
pub fn is_detached(env: sys::napi_env, buffer: sys::napi_value) -> bool {
    let mut detached = false;
    // SAFETY: the value is of `env`. If the call fails, the answer stays.
    let _ = unsafe { sys::napi_is_detached_arraybuffer(env, buffer, &mut detached) };
    detached
}

/// Bytes of JS memory, valid until control returns to JS. Accessed only through the pointer, since another worker may
/// share them.
#[derive(Clone, Copy)]
pub struct Bytes {
    pub data: *mut u8,
    pub len: usize,
}

impl Bytes {
    /// # Safety
    /// Do not use the bytes after the call, or after JS has run: JS may detach or shrink them. Other threads may write
    /// them but cannot take them away: memory that workers share neither shrinks nor moves.
    pub unsafe fn source<'a>(self) -> Source<'a> {
        // SAFETY: the engine gave pointer and length; the caller keeps to the call.
        unsafe { Source::new(self.data, self.len) }
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
        let mut kind = -1;
        // SAFETY: the value is of the calling environment, here and below. If the call fails, the kind is unknown.
        let _ = unsafe { sys::napi_typeof(self.env, self.raw, &mut kind) };
        ValueType::from(kind)
    }

    /// Asks one of the `napi_is_…` questions; false if the call fails.
    fn is(
        self,
        question: unsafe fn(sys::napi_env, sys::napi_value, *mut bool) -> sys::napi_status,
    ) -> bool {
        let mut is = false;
        // SAFETY: as above.
        let status = unsafe { question(self.env, self.raw, &mut is) };
        status == sys::Status::napi_ok && is
    }

    pub fn missing(self) -> bool {
        matches!(self.kind(), ValueType::Undefined | ValueType::Null)
    }

    /// The value as messages show it.
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
            _ if self.is(sys::napi_is_array) => "an array".to_owned(),
            _ if self.is(sys::napi_is_typedarray) => "a typed array".to_owned(),
            _ => "an object".to_owned(),
        }
    }

    /// The text of a primitive. Coercing a primitive runs no JS.
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
        let status = unsafe {
            sys::napi_get_value_string_utf8(self.env, value, ptr::null_mut(), 0, &mut length)
        };
        if status != sys::Status::napi_ok {
            return "?".to_owned();
        }
        let mut bytes = vec![0u8; length + 1];
        // SAFETY: `bytes` has room for the text and its nul.
        let status = unsafe {
            sys::napi_get_value_string_utf8(
                self.env,
                value,
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                &mut length,
            )
        };
        if status != sys::Status::napi_ok {
            return "?".to_owned();
        }
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
        self.integer_from(name, 0..=most)
    }

    pub fn integer_from(self, name: &str, range: RangeInclusive<u64>) -> Result<u64> {
        let (least, most) = range.into_inner();
        let number = self.double().ok_or_else(|| self.wrong(name, "a number"))?;
        if !(number >= least as f64 && number <= most as f64) || number.fract() != 0.0 {
            return Err(Error::range(
                name,
                format!("must be an integer from {least} to {most}"),
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
        // Numbers are the usual case, so ask for the type only if this fails.
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
                let status = unsafe { sys::napi_get_value_bool(self.env, self.raw, &mut on) };
                check(self.env, "napi_get_value_bool", status).map(|()| on)
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

    /// The strings of an array.
    pub fn strings(self, name: &str) -> Result<Vec<String>> {
        let wrong = || self.wrong(name, "an array of strings");
        let mut length = 0u32;
        if !self.is(sys::napi_is_array) {
            return Err(wrong());
        }
        // SAFETY: the value is an array.
        let status = unsafe { sys::napi_get_array_length(self.env, self.raw, &mut length) };
        check(self.env, "napi_get_array_length", status)?;
        let item = |i| {
            let mut raw = ptr::null_mut();
            // SAFETY: as above; a getter that throws leaves an exception, cleared below.
            let status = unsafe { sys::napi_get_element(self.env, self.raw, i, &mut raw) };
            if status != sys::Status::napi_ok {
                clear_exception(self.env);
                return Err(wrong());
            }
            Self { env: self.env, raw }.string(&format!("{name}[{i}]"))
        };
        (0..length).map(item).collect()
    }

    /// A property of an options object.
    pub fn property(self, name: &str) -> Result<Self> {
        self.member("options", name)
    }

    /// A property of the object that the call's documentation calls `object`.
    pub fn member(self, object: &str, name: &str) -> Result<Self> {
        let key = CString::new(name).unwrap_or_default();
        let mut raw = ptr::null_mut();
        // SAFETY: as above; the name is nul-terminated.
        let status =
            unsafe { sys::napi_get_named_property(self.env, self.raw, key.as_ptr(), &mut raw) };
        if status != sys::Status::napi_ok {
            clear_exception(self.env);
            return Err(Error::Type {
                argument: format!("{object}.{name}"),
                expected: "readable".to_owned(),
                value: "a property that throws".to_owned(),
            });
        }
        Ok(Self { env: self.env, raw })
    }

    /// The bytes of a TypedArray, DataView or ArrayBuffer.
    pub fn bytes(self, name: &str) -> Result<Bytes> {
        const EXPECTED: &str = "a TypedArray, a DataView or an ArrayBuffer";
        let mut data = ptr::null_mut();
        if self.is(sys::napi_is_typedarray) {
            let mut kind = -1;
            let mut length = 0;
            let mut buffer = ptr::null_mut();
            let mut offset = 0;
            // SAFETY: the value is a typed array.
            let status = unsafe {
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
            if status != sys::Status::napi_ok {
                clear_exception(self.env);
                return Err(self.wrong(name, EXPECTED));
            }
            // Only views of zero length can be of detached memory: the others need no check.
            if length == 0 && is_detached(self.env, buffer) {
                return Err(Error::Type {
                    argument: name.to_owned(),
                    expected: EXPECTED.to_owned(),
                    value: "a view of a detached ArrayBuffer".to_owned(),
                });
            }
            let len = match element_size(kind) {
                Some(size) => length * size,
                // Node-API has no name for this kind: Float16Array. Whatever kinds a runtime adds, never read beyond
                // their memory.
                None => {
                    let mut whole = 0;
                    // SAFETY: the buffer of a typed array.
                    let status = unsafe {
                        sys::napi_get_arraybuffer_info(
                            self.env,
                            buffer,
                            ptr::null_mut(),
                            &mut whole,
                        )
                    };
                    if status != sys::Status::napi_ok {
                        clear_exception(self.env);
                        let known = "a TypedArray of this kind over memory that is not shared";
                        return Err(self.wrong(name, known));
                    }
                    (length * 2).min(whole.saturating_sub(offset))
                }
            };
            return Ok(Bytes {
                data: data.cast(),
                len,
            });
        }
        if self.is(sys::napi_is_arraybuffer) {
            if is_detached(self.env, self.raw) {
                return Err(Error::Type {
                    argument: name.to_owned(),
                    expected: EXPECTED.to_owned(),
                    value: "a detached ArrayBuffer".to_owned(),
                });
            }
            let mut len = 0;
            // SAFETY: the value is an ArrayBuffer.
            let status =
                unsafe { sys::napi_get_arraybuffer_info(self.env, self.raw, &mut data, &mut len) };
            if status != sys::Status::napi_ok {
                clear_exception(self.env);
                return Err(self.wrong(name, EXPECTED));
            }
            return Ok(Bytes {
                data: data.cast(),
                len,
            });
        }
        if self.is(sys::napi_is_dataview) {
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
            if status != sys::Status::napi_ok || is_detached(self.env, buffer) {
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

    /// As [`Self::bytes`], for an upload. Up to [`FEW`] numbers are copied into `space`: a new typed array of up to 64
    /// bytes has no memory of its own until somebody asks for it, and asking makes V8 collect garbage, which takes as
    /// long as a large upload.
    pub fn upload(self, name: &str, space: &mut [u8; 4 * FEW]) -> Result<Bytes> {
        let Some((kind, length)) = self.typed_array() else {
            return self.bytes(name);
        };
        if let Some(len) = self.few(kind, length, space) {
            return Ok(Bytes {
                data: space.as_mut_ptr(),
                len,
            });
        }
        // A view with elements of a known size is not detached: no further check.
        match element_size(kind) {
            Some(size) if length > 0 => self.typed_data(length * size),
            _ => None,
        }
        .map_or_else(|| self.bytes(name), Ok)
    }

    /// The memory of a typed array of `len` bytes; none if the runtime does not expose it.
    fn typed_data(self, len: usize) -> Option<Bytes> {
        let mut data = ptr::null_mut();
        // SAFETY: the value is a typed array.
        let status = unsafe {
            sys::napi_get_typedarray_info(
                self.env,
                self.raw,
                ptr::null_mut(),
                ptr::null_mut(),
                &mut data,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        let data = data.cast();
        (status == sys::Status::napi_ok).then_some(Bytes { data, len })
    }

    /// Reads up to [`FEW`] 32-bit numbers one by one. None for anything else, and for NaNs, whose bits may change on
    /// the way.
    fn few(
        self,
        kind: sys::napi_typedarray_type,
        length: usize,
        space: &mut [u8; 4 * FEW],
    ) -> Option<usize> {
        use sys::TypedarrayType as T;
        if !(1..=FEW).contains(&length)
            || !matches!(kind, T::float32_array | T::int32_array | T::uint32_array)
        {
            return None;
        }
        for (i, word) in space.chunks_exact_mut(4).enumerate().take(length) {
            let mut raw = ptr::null_mut();
            let mut number = f64::NAN;
            // SAFETY: as above; the elements of a typed array are numbers, and reading them runs no JS.
            let read = unsafe {
                sys::napi_get_element(self.env, self.raw, i as u32, &mut raw)
                    == sys::Status::napi_ok
                    && sys::napi_get_value_double(self.env, raw, &mut number)
                        == sys::Status::napi_ok
            };
            let bits = match kind {
                T::float32_array => (number as f32).to_bits(),
                T::int32_array => number as i32 as u32,
                _ => number as u32,
            };
            if !read || number.is_nan() {
                return None;
            }
            word.copy_from_slice(&bits.to_ne_bytes());
        }
        Some(4 * length)
    }

    /// Kind and length of a typed array, without asking for its memory; none for anything else.
    fn typed_array(self) -> Option<(sys::napi_typedarray_type, usize)> {
        if !self.is(sys::napi_is_typedarray) {
            return None;
        }
        let mut kind = -1;
        let mut length = 0;
        // SAFETY: the value is a typed array.
        let status = unsafe {
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
        (status == sys::Status::napi_ok).then_some((kind, length))
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
        let bytes = copied(unsafe { bytes.source() })?;
        let mut words = Vec::new();
        let room = words.try_reserve_exact(bytes.len() / 4);
        room.map_err(|_| no_room(bytes.len()))?;
        words.extend(
            bytes
                .chunks_exact(4)
                .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])),
        );
        Ok(words)
    }

    /// Writes the buffer handles of an array (or Int32Array) into `out` and returns how many there are. For an element
    /// `{ buffer, offset, size }`, `ranges` gets the range to bind.
    pub fn handles(
        self,
        name: &str,
        out: &mut [i32],
        ranges: &mut Vec<BindingRange>,
    ) -> Result<usize> {
        let mut length = 0u32;
        if self.is(sys::napi_is_array) {
            // SAFETY: the value is an array.
            let status = unsafe { sys::napi_get_array_length(self.env, self.raw, &mut length) };
            check(self.env, "napi_get_array_length", status)?;
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
            if status != sys::Status::napi_ok && item.kind() == ValueType::Object {
                ranges.resize(length as usize, BindingRange::default());
                (*slot, ranges[i]) = item.binding(&format!("{name}[{i}]"))?;
                continue;
            }
            if status != sys::Status::napi_ok || f64::from(handle) != number || handle < 0 {
                return item.handle(&format!("{name}[{i}]"), "buffer").map(|_| 0);
            }
            *slot = handle;
        }
        Ok(length as usize)
    }
}

impl Arg {
    /// A range of a buffer: `{ buffer, offset, size }`.
    fn binding(self, name: &str) -> Result<(i32, BindingRange)> {
        let property = |key| {
            let readable = "a buffer handle or { buffer, offset, size }";
            self.property(key).map_err(|_| self.wrong(name, readable))
        };
        let buffer = property("buffer")?;
        if buffer.missing() {
            return self
                .handle(name, "buffer")
                .map(|handle| (handle, BindingRange::default()));
        }
        let handle = buffer.handle(&format!("{name}.buffer"), "buffer")?;
        let offset = property("offset")?.size_or(&format!("{name}.offset"), 0)?;
        let (size, argument) = (property("size")?, format!("{name}.size"));
        let size = match size.kind() {
            ValueType::Undefined => 0,
            _ => match size.size(&argument)? {
                0 => {
                    let problem = "must be positive (without it, all to the buffer's end is bound)";
                    return Err(Error::range(argument, problem, 0));
                }
                size => size,
            },
        };
        Ok((handle, BindingRange { offset, size }))
    }
}

impl Arg {
    /// The elements of an array of `length`.
    pub fn list(self, name: &str, length: usize) -> Result<Vec<Self>> {
        if !self.is(sys::napi_is_array) {
            return Err(self.wrong(name, &format!("an array of {length}")));
        }
        let mut found = 0u32;
        // SAFETY: the value is an array.
        let status = unsafe { sys::napi_get_array_length(self.env, self.raw, &mut found) };
        check(self.env, "napi_get_array_length", status)?;
        if found as usize != length {
            return Err(Error::range(
                name,
                format!("must have {length} elements"),
                found,
            ));
        }
        let element = |i| {
            let mut raw = ptr::null_mut();
            // SAFETY: as above; a getter that throws leaves an exception, cleared below.
            let status = unsafe { sys::napi_get_element(self.env, self.raw, i, &mut raw) };
            if status != sys::Status::napi_ok {
                clear_exception(self.env);
                return Err(self.wrong(name, &format!("an array of {length} that can be read")));
            }
            Ok(Self { env: self.env, raw })
        };
        (0..found).map(element).collect()
    }
}

/// Reading this many elements of a typed array one by one is faster than asking for its memory.
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

fn no_room(bytes: usize) -> Error {
    Error::OutOfMemory {
        what: "the argument",
        bytes: bytes as u64,
        space: "host",
        hint: String::new(),
    }
}

/// Copies an argument's bytes; fails if the process is out of memory.
pub fn copied(source: Source<'_>) -> Result<Vec<u8>> {
    source.to_vec().map_err(|_| no_room(source.len()))
}
