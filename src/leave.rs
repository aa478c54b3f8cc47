//! The end of the process. `process.exit` runs no clean-up of JS environments, but the driver's:
//! threads of ours must not be in the driver then, nor must a CPU driver be at work on its own. Where
//! there is no such handler, threads end before drivers do.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Something with a thread that may be in the driver, or that the driver's own threads work for.
pub trait Leave: Send + Sync {
    /// Returns once these have left the driver, for ever.
    fn leave(&self);
}

static LEAVING: Mutex<Vec<Weak<dyn Leave>>> = Mutex::new(Vec::new());

/// Calls `thread.leave()` when the process exits, if it still lives. To be called once the driver is
/// loaded: handlers run last in, first out. Each call adds the handler, which does its work once, since
/// a driver may have been loaded anew behind the last.
pub fn at_exit(thread: &Arc<impl Leave + 'static>) {
    #[cfg(unix)]
    // SAFETY: `leave` may run at any time after this.
    unsafe {
        libc::atexit(leave)
    };
    let mut leaving = LEAVING.lock();
    leaving.retain(|known| known.strong_count() > 0);
    let thread: Arc<dyn Leave> = thread.clone();
    leaving.push(Arc::downgrade(&thread));
}

#[cfg(unix)]
extern "C" fn leave() {
    let leaving = std::mem::take(&mut *LEAVING.lock());
    let leaving: Vec<_> = leaving.iter().filter_map(Weak::upgrade).collect();
    // Last in, first out, as handlers: whoever gives the device work before the device itself.
    for thread in leaving.into_iter().rev() {
        thread.leave();
        // Its last owner would destroy what the driver is about to forget.
        std::mem::forget(thread);
    }
}
