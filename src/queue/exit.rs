//! The end of the process. `process.exit` skips the clean-up of JS environments and runs the driver's exit handlers. By
//! then our threads must have left the driver, and a CPU driver must have finished its own work. On systems without
//! such handlers, threads end before drivers do.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::queue::timeline::Timeline;

/// How long exit waits for each thread that is in the driver; nobody sees its results any more.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Something with a thread that may be in the driver, or that the driver's own threads work for.
pub trait OnExit: Send + Sync {
    /// Returns once these threads have left the driver for good; false if they have not within [`LIMIT`].
    fn on_exit(&self) -> bool;
}

static EXITING: Mutex<Vec<Weak<dyn OnExit>>> = Mutex::new(Vec::new());

/// Whether the process is ending. A thread that drops a device holds the lock.
static OVER: Mutex<bool> = Mutex::new(false);

/// Drops a value owned by a detached thread. Dropping the last reference to a device unloads its driver, so the end of the
/// process waits for this; once the process is ending, the value is leaked instead.
pub fn let_go<T>(kept: T) {
    let over = OVER.lock();
    match *over {
        true => std::mem::forget(kept),
        false => drop(kept),
    }
}

/// Registers `thread.on_exit()` to be called when the process exits, if it is still alive. Call this after the driver
/// is loaded: where [`watch`] does nothing, exit handlers run last in, first out.
pub fn at_exit(thread: &Arc<impl OnExit + 'static>) {
    watch();
    // Registered each time, since a driver may have been loaded after the last time.
    #[cfg(all(unix, not(all(target_os = "linux", target_env = "gnu"))))]
    {
        extern "C" fn handler() {
            let _ = everybody_leaves();
        }
        // SAFETY: the handler may run at any time after this, and more than once.
        unsafe { libc::atexit(handler) };
    }
    let mut exiting = EXITING.lock();
    exiting.retain(|known| known.strong_count() > 0);
    let thread: Arc<dyn OnExit> = thread.clone();
    exiting.push(Arc::downgrade(&thread));
}

/// Makes all threads leave the driver before any exit handler of the process runs, even one that a driver registers
/// later. LLVM, for example, sets up its compiler at the first launch, and its handler destroys it while lavapipe's
/// threads still compile.
///
/// glibc's `exit` first runs the destructors of the calling thread's variables, as C++ requires, and then the handlers,
/// last in, first out. So a handler that such a destructor registers runs first; it also gets the exit status. Call
/// this on the main thread, on which Node ends the process; on other threads it does nothing.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn watch() {
    use std::ffi::{c_int, c_void};
    use std::ptr;
    use std::sync::Once;

    unsafe extern "C" {
        /// Identifies this library, which stays loaded until the destructor has run.
        static __dso_handle: c_void;
        fn __cxa_thread_atexit_impl(
            destructor: extern "C" fn(*mut c_void),
            object: *mut c_void,
            library: *const c_void,
        ) -> c_int;
        fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    extern "C" fn main_thread_ends(_: *mut c_void) {
        // SAFETY: the handler takes no argument, and this library is not unloaded any more.
        unsafe { on_exit(process_ends, ptr::null_mut()) };
    }
    extern "C" fn process_ends(status: c_int, _: *mut c_void) {
        if !everybody_leaves() {
            // SAFETY: ends the process at once. Other handlers would destroy what a driver works with.
            unsafe { libc::_exit(status) };
        }
    }

    static WATCHED: Once = Once::new();
    // SAFETY: neither call has a precondition.
    if unsafe { libc::gettid() == libc::getpid() } {
        // SAFETY: the destructor may run whenever this thread ends.
        WATCHED.call_once(|| unsafe {
            __cxa_thread_atexit_impl(main_thread_ends, ptr::null_mut(), &raw const __dso_handle);
        });
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn watch() {}

/// Asks all threads to leave the driver; whether they have.
#[cfg_attr(not(unix), allow(dead_code))]
fn everybody_leaves() -> bool {
    let exiting = std::mem::take(&mut *EXITING.lock());
    let exiting: Vec<_> = exiting.iter().filter_map(Weak::upgrade).collect();
    let mut left = true;
    // Last in, first out, like handlers: whoever submits work comes before the device.
    for thread in exiting.into_iter().rev() {
        left &= thread.on_exit();
        // Leaked: dropping the last reference would destroy what the driver is about to destroy.
        std::mem::forget(thread);
    }
    match OVER.try_lock_for(LIMIT) {
        Some(mut over) => *over = true,
        None => left = false,
    }
    left
}

impl OnExit for Timeline {
    /// For CPU drivers, whose threads belong to this process and would end in the middle of their work: SwiftShader's
    /// then read what its destructors have freed.
    fn on_exit(&self) -> bool {
        self.drained(Some(LIMIT))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;

    use super::*;

    const CHILD: &str = "HELIOS_TEST_LETS_GO";

    /// Something of a driver's that takes its time to go.
    struct Slow(mpsc::Sender<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            println!("gone");
        }
    }

    /// In a process of its own, since what is over stays so.
    #[test]
    fn the_end_of_the_process_waits_for_a_thread_that_lets_go() {
        if std::env::var_os(CHILD).is_some() {
            let (begins, begun) = mpsc::channel();
            let late = begins.clone();
            std::thread::spawn(move || let_go(Slow(begins)));
            begun.recv().unwrap();
            assert!(everybody_leaves());
            println!("over");
            let_go(Slow(late));
            return;
        }
        let name = "queue::exit::tests::the_end_of_the_process_waits_for_a_thread_that_lets_go";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        let order: Vec<_> = said
            .lines()
            .filter(|line| ["gone", "over"].contains(line))
            .collect();
        assert!(
            child.status.success() && order == ["gone", "over"],
            "{child:?}"
        );
    }
}
