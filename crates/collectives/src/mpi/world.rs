//! MPI after its start: the ranks, and collectives that are begun and then polled.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use super::flavor::{self, Constants, Flavor};
use super::library::Loaded;
use crate::call::{Call, Kind};

/// Elements that one call can name.
const MAX_COUNT: u64 = c_int::MAX as u64;

/// MPI after its start. Only the thread that started it may use it.
pub struct World {
    calls: Box<dyn Calls>,
    pub rank: u32,
    pub size: u32,
}

/// What an interface does; one request is under way at a time.
trait Calls {
    fn start(&self) -> Result<(), String>;
    fn ranks(&self) -> Result<(u32, u32), String>;
    /// # Safety
    /// As [`World::begin`].
    unsafe fn begin(
        &mut self,
        call: &Call,
        input: Option<*const u8>,
        data: *mut u8,
        size: u32,
    ) -> Result<(), String>;
    fn test(&mut self) -> Result<bool, String>;
    fn finalize(&mut self) -> Result<(), String>;
}

type Status = c_int;
type Ranks<H> = unsafe extern "C" fn(H, *mut c_int) -> Status;

/// The calls of an interface whose handles are `H`.
struct Bound<H> {
    constants: Constants<H>,
    init_thread: unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> Status,
    set_errhandler: unsafe extern "C" fn(H, H) -> Status,
    comm_rank: Ranks<H>,
    comm_size: Ranks<H>,
    iallreduce: unsafe extern "C" fn(*const c_void, *mut c_void, c_int, H, H, H, *mut H) -> Status,
    ireduce_scatter_block:
        unsafe extern "C" fn(*const c_void, *mut c_void, c_int, H, H, H, *mut H) -> Status,
    iallgather:
        unsafe extern "C" fn(*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H) -> Status,
    ialltoall:
        unsafe extern "C" fn(*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H) -> Status,
    ibcast: unsafe extern "C" fn(*mut c_void, c_int, H, c_int, H, *mut H) -> Status,
    test: unsafe extern "C" fn(*mut H, *mut c_int, *mut c_void) -> Status,
    error_string: unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> Status,
    finalize: unsafe extern "C" fn() -> Status,
    request: H,
}

impl<H: Copy> Bound<H> {
    /// # Safety
    /// `H` is how the library's interface passes handles.
    unsafe fn new(loaded: &Loaded, constants: Constants<H>) -> Result<Self, String> {
        macro_rules! bind {
            ($name:literal) => {{
                // SAFETY: the field's type is the call's of the MPI standard, given `H`.
                let call = unsafe { loaded.symbol($name) };
                call?
            }};
        }
        Ok(Self {
            init_thread: bind!("MPI_Init_thread"),
            set_errhandler: bind!("MPI_Comm_set_errhandler"),
            comm_rank: bind!("MPI_Comm_rank"),
            comm_size: bind!("MPI_Comm_size"),
            iallreduce: bind!("MPI_Iallreduce"),
            ireduce_scatter_block: bind!("MPI_Ireduce_scatter_block"),
            iallgather: bind!("MPI_Iallgather"),
            ialltoall: bind!("MPI_Ialltoall"),
            ibcast: bind!("MPI_Ibcast"),
            test: bind!("MPI_Test"),
            error_string: bind!("MPI_Error_string"),
            finalize: bind!("MPI_Finalize"),
            request: constants.no_request,
            constants,
        })
    }

    fn check(&self, call: &str, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // `MPI_MAX_ERROR_STRING` is 512 or less.
        let mut text = [0 as c_char; 513];
        let mut length = 0;
        // SAFETY: the text has room for the longest and ends with a zero.
        unsafe { (self.error_string)(status, text.as_mut_ptr(), &mut length) };
        // SAFETY: the last byte is a zero, whatever the library wrote before it.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
        Err(format!("{call} failed: {text} ({status})"))
    }

    fn in_place(&self) -> *const c_void {
        ptr::without_provenance(self.constants.in_place as usize)
    }

    /// Bytes as elements: in words where that is possible, since a count is an `int`.
    fn count_of(&self, bytes: u64) -> Result<(c_int, H), String> {
        let (elements, datatype) = match bytes.is_multiple_of(4) {
            true => (bytes / 4, self.constants.float),
            false => (bytes, self.constants.byte),
        };
        Ok((count(elements)?, datatype))
    }
}

fn count(elements: u64) -> Result<c_int, String> {
    match elements <= MAX_COUNT {
        true => Ok(elements as c_int),
        false => Err(format!(
            "{elements} elements are more than MPI takes at once ({MAX_COUNT})"
        )),
    }
}

impl<H: Copy> Calls for Bound<H> {
    fn start(&self) -> Result<(), String> {
        let mut provided = 0;
        let none = ptr::null_mut();
        // SAFETY: no arguments are passed on. This thread alone calls MPI, from now on.
        let status = unsafe {
            (self.init_thread)(
                none,
                none.cast(),
                self.constants.funneled,
                &raw mut provided,
            )
        };
        self.check("MPI_Init_thread", status)?;
        if provided < self.constants.funneled {
            return Err("this MPI is built without support for threads".to_owned());
        }
        let Constants {
            world,
            errors_return,
            ..
        } = self.constants;
        // SAFETY: both are constants of this interface. Errors are answers from now on, instead of the end.
        let status = unsafe { (self.set_errhandler)(world, errors_return) };
        self.check("MPI_Comm_set_errhandler", status)
    }

    fn ranks(&self) -> Result<(u32, u32), String> {
        let ask = |call, name| -> Result<u32, String> {
            let call: Ranks<H> = call;
            let mut number = 0;
            // SAFETY: MPI has started, and the number is written to.
            let status = unsafe { call(self.constants.world, &raw mut number) };
            self.check(name, status)?;
            Ok(number as u32)
        };
        Ok((
            ask(self.comm_rank, "MPI_Comm_rank")?,
            ask(self.comm_size, "MPI_Comm_size")?,
        ))
    }

    unsafe fn begin(
        &mut self,
        call: &Call,
        input: Option<*const u8>,
        data: *mut u8,
        size: u32,
    ) -> Result<(), String> {
        let Constants {
            world,
            float,
            sum,
            no_datatype,
            ..
        } = self.constants;
        let (data, here) = (data.cast::<c_void>(), self.in_place());
        let request = &raw mut self.request;
        let part = call.part_bytes(size);
        let (name, status) = match call.kind {
            Kind::AllReduce => {
                let count = count(call.elements)?;
                // SAFETY: MPI has started; the caller vouches for the memory, and the handles are of this interface.
                let status =
                    unsafe { (self.iallreduce)(here, data, count, float, sum, world, request) };
                ("MPI_Iallreduce", status)
            }
            Kind::ReduceScatter => {
                let count = count(call.elements / u64::from(size))?;
                let from = input.map_or(here, <*const u8>::cast);
                let scatter = self.ireduce_scatter_block;
                // SAFETY: as above.
                let status = unsafe { scatter(from, data, count, float, sum, world, request) };
                ("MPI_Ireduce_scatter_block", status)
            }
            Kind::AllGather => {
                let (count, datatype) = self.count_of(part)?;
                // SAFETY: as above.
                let status = unsafe {
                    (self.iallgather)(here, 0, no_datatype, data, count, datatype, world, request)
                };
                ("MPI_Iallgather", status)
            }
            Kind::AllToAll => {
                let (count, datatype) = self.count_of(part)?;
                let half = part as usize * size as usize;
                let (from, exchange) = (data.cast_const(), self.ialltoall);
                // SAFETY: as above; the memory is as long as both halves.
                let status = unsafe {
                    let to = data.byte_add(half);
                    exchange(from, count, datatype, to, count, datatype, world, request)
                };
                ("MPI_Ialltoall", status)
            }
            Kind::Broadcast => {
                let (count, datatype) = self.count_of(part)?;
                let root = call.root as c_int;
                // SAFETY: as above.
                let status = unsafe { (self.ibcast)(data, count, datatype, root, world, request) };
                ("MPI_Ibcast", status)
            }
            Kind::Leave => return Err("MPI is left by `finalize`".to_owned()),
        };
        self.check(name, status)
    }

    fn test(&mut self) -> Result<bool, String> {
        let mut done = 0;
        // At least as large as any interface's `MPI_Status`, of 20 to 32 bytes.
        let mut status = [0u64; 16];
        // SAFETY: the request is the one of `begin`, or none; both results are written to.
        let result = unsafe {
            (self.test)(
                &raw mut self.request,
                &raw mut done,
                status.as_mut_ptr().cast(),
            )
        };
        self.check("MPI_Test", result)?;
        Ok(done != 0)
    }

    fn finalize(&mut self) -> Result<(), String> {
        // SAFETY: MPI has started, and this is the thread that did so.
        let status = unsafe { (self.finalize)() };
        self.check("MPI_Finalize", status)
    }
}

fn bind(loaded: &Loaded) -> Result<Box<dyn Calls>, String> {
    match loaded.found.flavor {
        // SAFETY: MPICH's handles are of the type `int`.
        Flavor::Mpich => unsafe { boxed(loaded, flavor::MPICH) },
        Flavor::Standard => {
            let c = flavor::STANDARD;
            let of = ptr::without_provenance_mut::<c_void>;
            let constants = Constants {
                world: of(c.world),
                float: of(c.float),
                byte: of(c.byte),
                sum: of(c.sum),
                errors_return: of(c.errors_return),
                no_request: of(c.no_request),
                no_datatype: of(c.no_datatype),
                in_place: c.in_place,
                funneled: c.funneled,
            };
            // SAFETY: the handles of MPI-5 are pointers.
            unsafe { boxed(loaded, constants) }
        }
        Flavor::OpenMpi => {
            let mut objects = [ptr::null_mut::<c_void>(); 7];
            for (object, name) in objects.iter_mut().zip(flavor::OPEN_MPI_OBJECTS) {
                // SAFETY: an object is asked for by its address.
                *object = unsafe { loaded.symbol(name) }?;
            }
            let [
                world,
                float,
                byte,
                sum,
                errors_return,
                no_request,
                no_datatype,
            ] = objects;
            let constants = Constants {
                world,
                float,
                byte,
                sum,
                errors_return,
                no_request,
                no_datatype,
                in_place: flavor::OPEN_MPI_IN_PLACE,
                funneled: flavor::OPEN_MPI_FUNNELED,
            };
            // SAFETY: Open MPI's handles are pointers to its objects.
            unsafe { boxed(loaded, constants) }
        }
    }
}

/// # Safety
/// As [`Bound::new`].
unsafe fn boxed<H: Copy + 'static>(
    loaded: &Loaded,
    constants: Constants<H>,
) -> Result<Box<dyn Calls>, String> {
    // SAFETY: the caller's promise.
    Ok(Box::new(unsafe { Bound::new(loaded, constants) }?))
}

impl World {
    /// Starts MPI, together with all other ranks: may block until they are there. To be called once in a process.
    pub fn start(loaded: &Loaded) -> Result<Self, String> {
        let calls = bind(loaded)?;
        calls.start()?;
        let (rank, size) = calls.ranks()?;
        Ok(Self { calls, rank, size })
    }

    /// Begins a collective. [`Self::test`] says when it has ended; until then no other may be begun. `input`: the elements of a
    /// reduce-scatter, if they are not at `data`.
    ///
    /// # Safety
    /// `data` is valid for reads and writes of what the call stages, until `test` has said that it ended, or
    /// forever; nobody else uses it meanwhile. With an `input` that is valid for reads of all shards as long, and `data`
    /// need be of one alone.
    pub unsafe fn begin(
        &mut self,
        call: &Call,
        input: Option<*const u8>,
        data: *mut u8,
    ) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { self.calls.begin(call, input, data, self.size) }
    }

    /// Whether the collective has ended; lets it go on meanwhile.
    pub fn test(&mut self) -> Result<bool, String> {
        self.calls.test()
    }

    /// Ends MPI, together with all other ranks.
    pub fn finalize(mut self) -> Result<(), String> {
        self.calls.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_an_int() {
        assert_eq!(count(MAX_COUNT), Ok(c_int::MAX));
        let error = count(MAX_COUNT + 1).expect_err("too many");
        assert!(
            error.contains("2147483648 elements are more than"),
            "{error}"
        );
    }
}
