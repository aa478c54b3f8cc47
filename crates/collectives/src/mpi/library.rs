//! The search for a library: it tries names and paths in turn, and keeps each answer for the error that lists them.

use std::ffi::{CStr, c_char, c_int};

use libloading::Library;

use super::flavor::{Flavor, OPEN_MPI_OBJECTS};

/// A library that loads and says what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The name or path under which it was loaded.
    pub library: String,
    pub flavor: Flavor,
    /// The first line of what it says of itself.
    pub version: String,
}

/// One that does not load, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub library: String,
    pub reason: String,
}

/// The most that any of them writes there: `MPI_MAX_LIBRARY_VERSION_STRING` is 8192 or less.
const MAX_VERSION: usize = 8192;

#[derive(Clone, Copy)]
pub(crate) enum Scope {
    /// Its symbols stay its own: for a look.
    Local,
    /// Open MPI's plugins find its symbols in the process alone.
    Global,
}

#[cfg(unix)]
pub(crate) fn open(name: &str, scope: Scope) -> Result<Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
    let flags = match scope {
        Scope::Local => RTLD_NOW | RTLD_LOCAL,
        Scope::Global => RTLD_NOW | RTLD_GLOBAL,
    };
    // SAFETY: runs the library's initializers. It is one that the caller names as an MPI, and it is never unloaded.
    unsafe { Library::open(Some(name), flags) }.map(Into::into)
}

#[cfg(not(unix))]
pub(crate) fn open(name: &str, _: Scope) -> Result<Library, libloading::Error> {
    // SAFETY: as above.
    unsafe { Library::new(name) }
}

/// A library that is not unloaded: MPIs leave threads and handlers behind.
pub struct Loaded {
    pub library: &'static Library,
    pub found: Found,
}

impl Loaded {
    /// A function or an object of the library by its name in C.
    ///
    /// # Safety
    /// `T` is a pointer: for a function, to one with the arguments and results that the MPI standard gives it.
    pub unsafe fn symbol<T: Copy>(&self, name: &str) -> Result<T, String> {
        // SAFETY: the caller's promise.
        unsafe { symbol(self.library, name) }.map_err(|e| format!("{}: {e}", self.found.library))
    }
}

/// # Safety
/// As [`Loaded::symbol`].
pub(crate) unsafe fn symbol<T: Copy>(
    library: &Library,
    name: &str,
) -> Result<T, libloading::Error> {
    // SAFETY: the caller's promise. The pointer outlives the borrow, since the library is never unloaded.
    unsafe { library.get::<T>(name.as_bytes()) }.map(|symbol| *symbol)
}

fn load(name: &str, scope: Scope) -> Result<Loaded, Missing> {
    let missing = |reason: String| Missing {
        library: name.to_owned(),
        reason,
    };
    if name.is_empty() || name.contains('\0') {
        return Err(missing("is no name of a library".to_owned()));
    }
    // What the loader says is the cause of what `libloading` says.
    let library = open(name, scope).map_err(|e| {
        let cause = std::error::Error::source(&e).map(ToString::to_string);
        missing(cause.unwrap_or_else(|| e.to_string()))
    })?;
    let library: &'static Library = Box::leak(Box::new(library));
    // SAFETY: an object is asked for by its address, which is not used.
    let object = unsafe { symbol::<*const u8>(library, OPEN_MPI_OBJECTS[0]) };
    let flavor = Flavor::detect(name, object.is_ok());
    type GetVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    // SAFETY: the type of `MPI_Get_library_version`.
    let version = unsafe { symbol::<GetVersion>(library, "MPI_Get_library_version") };
    let version = version.map_err(|_| missing("is no MPI (no MPI_Get_library_version)".into()))?;
    let mut text = vec![0 as c_char; MAX_VERSION + 1];
    let mut length = 0;
    // SAFETY: may be called before MPI starts; the text has room for the longest and ends with a zero.
    let status = unsafe { version(text.as_mut_ptr(), &mut length) };
    if status != 0 {
        return Err(missing(format!(
            "MPI_Get_library_version answered {status}"
        )));
    }
    // SAFETY: the last byte is a zero, whatever the library wrote before it.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
    let line = text.lines().next().unwrap_or("").trim();
    // Open MPI writes all in one line, and MPICH aligns with tabs.
    let line = line.split(", package:").next().unwrap_or(line);
    let version = line.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Loaded {
        library,
        found: Found {
            library: name.to_owned(),
            flavor,
            version,
        },
    })
}

/// What a library is, without starting it. It stays loaded: for a process that only looks.
pub fn probe(name: &str) -> Result<Found, Missing> {
    load(name, Scope::Local).map(|loaded| loaded.found)
}

/// The first of these that loads, for use; or what is wrong with each.
pub fn find(names: &[String]) -> Result<Loaded, Vec<Missing>> {
    let mut missing = Vec::new();
    for name in names {
        match load(name, Scope::Global) {
            Ok(loaded) => return Ok(loaded),
            Err(why) => missing.push(why),
        }
    }
    Err(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named_with_the_loaders_words() {
        let names = ["libhelios-none.so.1".to_owned(), "a\0b".to_owned()];
        let missing = find(&names).err().unwrap_or_default();
        let named: Vec<_> = missing.iter().map(|m| m.library.clone()).collect();
        assert_eq!(named, names);
        assert!(missing.iter().all(|m| !m.reason.is_empty()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_that_is_no_mpi_is_refused() {
        let missing = probe("libc.so.6").expect_err("no MPI");
        assert!(missing.reason.contains("is no MPI"), "{}", missing.reason);
    }
}
