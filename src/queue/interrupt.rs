//! SIGINT while a wait blocks the thread that would handle it: the second SIGINT ends the process.
//!
//! If a program listens to SIGINT, its runtime's handler only notes the signal for the event loop, which cannot run
//! until the wait is over. So during a long wait our handler stands in front of the runtime's. It passes the first
//! signal on; at the second it restores the system's default action and raises the signal again. If nobody listens, no
//! handler is needed. The end of the wait restores what was there.

#[cfg(unix)]
pub use unix::Interrupt;

#[cfg(not(unix))]
pub struct Interrupt;

#[cfg(not(unix))]
impl Interrupt {
    /// Watches nothing. Windows' console reports Ctrl-C on a thread of its own. If nobody listens, the system ends the
    /// process. If JavaScript listens, libuv consumes each Ctrl-C, and the listener hears of them after the wait.
    pub fn watch() -> Self {
        Self
    }
}

#[cfg(unix)]
mod unix {
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

    use libc::{SA_SIGINFO, SIG_DFL, SIG_IGN, SIGINT, c_int, c_void, siginfo_t};
    use parking_lot::Mutex;

    /// Number of watched waits, and the action that was installed before the first.
    static WATCHES: Mutex<(u32, Option<libc::sigaction>)> = Mutex::new((0, None));
    /// The part of that action that the handler needs.
    static BEFORE: AtomicUsize = AtomicUsize::new(SIG_DFL);
    static BEFORE_FLAGS: AtomicI32 = AtomicI32::new(0);
    /// Signals since the first wait.
    static COUNT: AtomicU32 = AtomicU32::new(0);

    pub struct Interrupt(());

    impl Interrupt {
        /// Watches until it is dropped.
        pub fn watch() -> Self {
            let mut watches = WATCHES.lock();
            watches.0 += 1;
            if watches.0 == 1 {
                watches.1 = install();
            }
            Self(())
        }
    }

    impl Drop for Interrupt {
        fn drop(&mut self) {
            let mut watches = WATCHES.lock();
            watches.0 -= 1;
            if watches.0 > 0 {
                return;
            }
            if let Some(before) = watches.1.take()
                // If somebody has installed another handler meanwhile, keep that one.
                && current().is_some_and(|now| now.sa_sigaction == handler())
            {
                // SAFETY: an action that the system gave.
                unsafe { libc::sigaction(SIGINT, &before, ptr::null_mut()) };
            }
        }
    }

    fn handler() -> usize {
        on_interrupt as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize
    }

    fn current() -> Option<libc::sigaction> {
        let mut now = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: a null action asks; the pointer is valid for a whole structure.
        let asked = unsafe { libc::sigaction(SIGINT, ptr::null(), now.as_mut_ptr()) } == 0;
        // SAFETY: a call that succeeds fills it.
        asked.then(|| unsafe { now.assume_init() })
    }

    /// Installs our handler in front of the present one and returns that; none if there is none.
    fn install() -> Option<libc::sigaction> {
        let before = current()?;
        if matches!(before.sa_sigaction, SIG_DFL | SIG_IGN) {
            return None;
        }
        BEFORE.store(before.sa_sigaction, Ordering::Relaxed);
        BEFORE_FLAGS.store(before.sa_flags, Ordering::Relaxed);
        COUNT.store(0, Ordering::Relaxed);
        let mut ours = before;
        ours.sa_sigaction = handler();
        ours.sa_flags |= SA_SIGINFO;
        // SAFETY: the handler makes only calls that a handler may make.
        (unsafe { libc::sigaction(SIGINT, &ours, ptr::null_mut()) } == 0).then_some(before)
    }

    extern "C" fn on_interrupt(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        if COUNT.fetch_add(1, Ordering::Relaxed) > 0 {
            // SAFETY: both may be called in a handler. The signal is delivered as this one returns.
            unsafe {
                libc::signal(signal, SIG_DFL);
                libc::raise(signal);
            }
            return;
        }
        let before = BEFORE.load(Ordering::Relaxed);
        // SAFETY: the function that was installed, called as its flags say.
        unsafe {
            if BEFORE_FLAGS.load(Ordering::Relaxed) & SA_SIGINFO != 0 {
                let call: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                    std::mem::transmute(before);
                call(signal, info, context);
            } else {
                let call: extern "C" fn(c_int) = std::mem::transmute(before);
                call(signal);
            }
        }
    }
}
