//! Functions of CUDA's driver and of NCCL, found by name; each returns a status.

/// Binds functions that answer with a number, each with its name for errors.
macro_rules! functions {
    ($table:ident: $($field:ident = $name:literal ($($argument:ty),* $(,)?);)*) => {
        struct $table {
            $($field: $crate::nccl::bind::Function<
                unsafe extern "C" fn($($argument),*) -> std::ffi::c_int
            >,)*
        }

        impl $table {
            fn bind(library: &'static libloading::Library) -> Result<Self, String> {
                Ok(Self { $($field: {
                    // SAFETY: the type is the one that the header gives it.
                    let symbol = unsafe {
                        $crate::mpi::library::symbol(library, $name)
                    };
                    $crate::nccl::bind::Function {
                        name: $name,
                        call: symbol.map_err(|_| format!("has no {}", $name))?,
                    }
                },)* })
            }
        }
    };
}
pub(super) use functions;

pub(super) struct Function<T> {
    pub(super) name: &'static str,
    pub(super) call: T,
}

/// Why a library does not load: what the loader says is the cause of what `libloading` says.
pub(super) fn reason(error: &libloading::Error) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), ToString::to_string)
}
