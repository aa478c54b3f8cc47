//! SIGINT while a wait blocks the thread that would run its handler: the second one ends the process.
//!
//! A program that listens to SIGINT has a handler of its runtime's, which only notes the signal for the event
//! loop; nothing comes of it before the wait is over. So while a wait is long, a handler of ours stands before
//! that one: it passes the first signal on, and at the second restores what the system does by default, and
//! raises it again. Where nobody listens there is nothing to do, and what was there comes back with the wait's
//! end.

#[cfg(unix)]
pub use unix::Interrupt;

#[cfg(not(unix))]
pub struct Interrupt;

#[cfg(not(unix))]
impl Interrupt {
    /// Where there are no signals, the system ends the process itself.
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

    /// How many waits are watched, and the action that was there before the first.
    static WATCHES: Mutex<(u32, Option<libc::sigaction>)> = Mutex::new((0, None));
    /// What the handler needs of that action.
    static BEFORE: AtomicUsize = AtomicUsize::new(SIG_DFL);
    static BEFORE_FLAGS: AtomicI32 = AtomicI32::new(0);
    /// Signals since the first wait.
    static COUNT: AtomicU32 = AtomicU32::new(0);

    pub struct Interrupt(());

    impl Interrupt {
        /// From now on, until it is dropped.
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
                // Whoever has put another in its place meanwhile knows better.
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

    /// Puts the handler before the one that is there, which comes back; none where there is none.
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
