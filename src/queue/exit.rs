//! The end of the process. `process.exit` runs no clean-up of JS environments, but the driver's:
//! threads of ours must not be in the driver then, nor must a CPU driver be at work on its own. Where
//! there is no such handler, threads end before drivers do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::queue::timeline::Timeline;

/// Something with a thread that may be in the driver, or that the driver's own threads work for.
pub trait OnExit: Send + Sync {
    /// Returns once these have left the driver, forever.
    fn on_exit(&self);
}

static EXITING: Mutex<Vec<Weak<dyn OnExit>>> = Mutex::new(Vec::new());

/// Whether the process is over. Its lock is held by a thread that lets go of a device.
static OVER: Mutex<bool> = Mutex::new(false);

/// How long the end of the process waits for such a thread, which a driver may not return to.
const LET_GO: Duration = Duration::from_secs(5);

/// Drops what a thread has kept that nobody joins: it may be the last of a device, with which its driver is unloaded. The
/// end of the process, which may be at that driver's own handlers, waits for this; if it has come so far, nothing
/// is dropped any more.
pub fn let_go<T>(kept: T) {
    let over = OVER.lock();
    match *over {
        true => std::mem::forget(kept),
        false => drop(kept),
    }
}

/// Calls `thread.on_exit()` when the process exits, if it still lives. To be called once the driver is
/// loaded: handlers run last in, first out. Each call adds the handler, which does its work once, since
/// a driver may have been loaded anew behind the last.
pub fn at_exit(thread: &Arc<impl OnExit + 'static>) {
    handle(run_handlers);
    let mut exiting = EXITING.lock();
    exiting.retain(|known| known.strong_count() > 0);
    let thread: Arc<dyn OnExit> = thread.clone();
    exiting.push(Arc::downgrade(&thread));
}

/// Calls `handler` when the process exits or [`retire`] is called, before what is registered by now.
#[cfg(unix)]
pub fn handle(handler: extern "C" fn()) {
    // SAFETY: the handlers of this crate may run at any time after this, and more than once.
    unsafe { libc::atexit(handler) };
}

#[cfg(not(unix))]
pub fn handle(_: extern "C" fn()) {}

static RETIRING: AtomicBool = AtomicBool::new(false);

/// Whether handlers are called only to be taken out: the process lives on.
pub fn retiring() -> bool {
    RETIRING.load(Ordering::Acquire)
}

/// Takes the handlers back out, if all that they are for is gone. A driver that is unloaded takes out its own (LLVM
/// has a thousand), but the C library reuses the memory of a list's end alone: those of ours that stay behind
/// them would keep 34 KiB with every device.
pub fn retire() {
    // A thread that lets go needs them.
    let Some(_nobody) = OVER.try_lock() else {
        return;
    };
    if EXITING.lock().iter().any(|known| known.strong_count() > 0) {
        return;
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            /// Stands for this library, as in the registrations of `atexit`.
            static __dso_handle: libc::c_void;
            fn __cxa_finalize(library: *const libc::c_void);
        }
        RETIRING.store(true, Ordering::Release);
        // SAFETY: runs what this library has registered, which does nothing now, and takes it out.
        unsafe { __cxa_finalize(&raw const __dso_handle) };
        RETIRING.store(false, Ordering::Release);
    }
}

#[cfg_attr(not(unix), allow(dead_code))]
extern "C" fn run_handlers() {
    if retiring() {
        return;
    }
    let exiting = std::mem::take(&mut *EXITING.lock());
    let exiting: Vec<_> = exiting.iter().filter_map(Weak::upgrade).collect();
    // Last in, first out, as handlers: whoever gives the device work before the device itself.
    for thread in exiting.into_iter().rev() {
        thread.on_exit();
        // Its last owner would destroy what the driver is about to forget.
        std::mem::forget(thread);
    }
    if let Some(mut over) = OVER.try_lock_for(LET_GO) {
        *over = true;
    }
}

impl OnExit for Timeline {
    /// For CPU drivers, whose threads are of this process and end with it in the midst of their work:
    /// SwiftShader's then read what its destructors have freed.
    fn on_exit(&self) {
        // One that hangs is left to the system.
        self.drained();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;

    use super::*;

    const CHILD: &str = "HELIOS_TEST_LETS_GO";

    struct Idle;

    impl OnExit for Idle {
        fn on_exit(&self) {}
    }

    /// Something of a driver's that takes its time to go.
    struct Slow(mpsc::Sender<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            println!("gone");
        }
    }

    #[test]
    fn the_end_of_the_process_waits_for_a_thread_that_lets_go() {
        if std::env::var_os(CHILD).is_some() {
            at_exit(&Arc::new(Idle));
            let (begins, begun) = mpsc::channel();
            std::thread::spawn(move || let_go(Slow(begins)));
            begun.recv().unwrap();
            // Nothing that is registered lives, but the thread is at it.
            retire();
            std::process::exit(0);
        }
        let name = "queue::exit::tests::the_end_of_the_process_waits_for_a_thread_that_lets_go";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("gone"), "{child:?}");
    }
}
