//! The one device of the process, shared by all its JS environments (the main thread and workers).

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::Config;
use crate::context::{Context, Legacy};
use crate::error::{Error, Result, panicked};
use crate::queue::{completion, exit};
use crate::table::{Owner, SHARED};

enum State {
    /// `initDevice` was not called yet.
    Absent,
    Ready(Box<Context>),
    /// A call panicked while it changed the device: only reports and `destroy` use it from now on.
    Broken(Box<Context>, String),
    /// `destroy` was called. Handles and timeline values continue from there.
    Gone(Box<Legacy>),
}

static STATE: Mutex<State> = Mutex::new(State::Absent);
/// Incremented for every device, so that a thread's batch ends with the device it was opened on.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static VALIDATING: AtomicBool = AtomicBool::new(false);
static STACKS: AtomicBool = AtomicBool::new(false);
/// JS environments that have loaded the addon and have not ended.
static ENVIRONMENTS: AtomicU64 = AtomicU64::new(0);
/// The last [`Owner`] given to an environment.
static OWNERS: AtomicU32 = AtomicU32::new(SHARED);

/// A thread's open batch. Its work goes to the stream at once, so this is only bookkeeping.
#[derive(Clone, Copy, Default)]
struct OpenBatch {
    open: bool,
    /// Whether anything was added.
    any: bool,
    generation: u64,
}

thread_local! {
    /// This thread's environment. When it ends, what no other environment has used may be freed.
    static OWNER: Cell<Owner> = const { Cell::new(SHARED) };
    /// Whether ending now would interrupt the environment's program (as `terminate()` does).
    static IN_THE_MIDDLE: Cell<bool> = const { Cell::new(false) };
    static BATCH: Cell<OpenBatch> = const { Cell::new(OpenBatch { open: false, any: false, generation: 0 }) };
}

impl State {
    /// Runs `body` on the device. A panic in it makes the device unusable.
    #[inline]
    fn run<T>(&mut self, body: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
        let result = match self {
            Self::Ready(context) => {
                context.enter(OWNER.get());
                catch_unwind(AssertUnwindSafe(|| body(context)))
            }
            Self::Broken(_, text) => {
                return Err(Error::DeviceLost(format!("in an earlier call: {text}")));
            }
            Self::Absent => {
                return Err(Error::NoDevice(
                    "there is no device yet: call initDevice() first".to_owned(),
                ));
            }
            Self::Gone(_) => {
                return Err(Error::NoDevice(
                    "the device is gone: destroy() was called; initDevice() makes a new one"
                        .to_owned(),
                ));
            }
        };
        result.unwrap_or_else(|panic| Err(self.broken(&*panic)))
    }

    #[cold]
    fn broken(&mut self, panic: &(dyn Any + Send)) -> Error {
        let text = panicked(panic);
        let error = Error::DeviceLost(text.clone());
        *self = match std::mem::replace(self, Self::Absent) {
            Self::Ready(context) => {
                // Fails the waits of threads that do not hold the lock.
                context.device.fail(&error);
                Self::Broken(context, text)
            }
            other => other,
        };
        error
    }
}

/// Runs `body` on the device.
#[inline]
pub fn with<T>(body: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
    STATE.lock().run(|context| {
        context.timing.begin_call();
        body(context)
    })
}

/// Makes the device unless there is one, then runs `body` on it.
pub fn init<T>(
    config: impl FnOnce() -> Result<Config>,
    body: impl FnOnce(&mut Context) -> Result<T>,
) -> Result<T> {
    let mut state = STATE.lock();
    if matches!(&*state, State::Ready(_) | State::Broken(..)) {
        return state.run(|context| {
            context.device.check_alive()?;
            body(context)
        });
    }
    let config = config()?;
    let mut first = Legacy::default();
    let legacy = match &mut *state {
        State::Gone(legacy) => legacy,
        _ => &mut first,
    };
    let context = Box::new(Context::new(&config, legacy)?);
    let _before = GENERATION.fetch_add(1, Ordering::AcqRel);
    VALIDATING.store(config.validation, Ordering::Release);
    STACKS.store(config.validation || config.stacks, Ordering::Release);
    *state = State::Ready(context);
    state.run(body)
}

/// Waits for the device for at most `limit`, then releases everything. Does nothing without a device.
pub fn destroy(limit: Option<Duration>) {
    let mut state = STATE.lock();
    let (State::Ready(context) | State::Broken(context, _)) = &*state else {
        return;
    };
    let gone = State::Gone(Box::new(context.legacy()));
    if let State::Ready(context) | State::Broken(context, _) = std::mem::replace(&mut *state, gone)
    {
        // What a panic left half-changed may panic again: then the rest is leaked.
        let _ = catch_unwind(AssertUnwindSafe(|| context.close(limit)));
        // Under the lock, so that no promise of the next device can come in between.
        completion::finish();
    }
}

/// Writes the report of a failure, if it is of a kind that is reported and there is a device. `stack` is the JS stack
/// of the call.
pub fn report(call: &str, error: &Error, stack: impl FnOnce() -> String) -> Option<PathBuf> {
    if !error.reports() {
        return None;
    }
    let stack = stack();
    match &*STATE.lock() {
        State::Ready(context) | State::Broken(context, _) => {
            catch_unwind(AssertUnwindSafe(|| context.report(call, error, &stack)))
                .ok()
                .flatten()
        }
        _ => None,
    }
}

/// Validation messages since the last call, if `HELIOS_VALIDATION` is on.
pub fn validation_messages() -> Option<String> {
    if !VALIDATING.load(Ordering::Acquire) {
        return None;
    }
    let messages = STATE.lock().run(|context| {
        context.record_pending();
        Ok(context.device.instance.messages.take())
    });
    messages.ok().flatten()
}

/// Whether promises capture the stacks of their calls: with `HELIOS_STACKS=1`, or under validation.
pub fn stacks() -> bool {
    STACKS.load(Ordering::Acquire)
}

pub fn environment_enters() {
    exit::watch();
    let _before = ENVIRONMENTS.fetch_add(1, Ordering::AcqRel);
    // If this thread loads the addon again, its environment keeps its owner.
    if OWNER.get() == SHARED {
        OWNER.set(OWNERS.fetch_add(1, Ordering::AcqRel) + 1);
    }
}

/// Notes whether the environment's program is still running.
pub fn program_runs(on: bool) {
    IN_THE_MIDDLE.set(on);
}

/// Ends an environment. The last one destroys the device, since drivers must not be torn down under work in flight;
/// until then the end of a worker leaves it alone. If a worker was terminated, what only it has used is freed, since
/// nobody else could name it. A worker that came to its end may have told others the handles of what it made.
pub fn environment_leaves() {
    BATCH.with(|b| b.set(OpenBatch::default()));
    let owner = OWNER.replace(SHARED);
    let terminated = IN_THE_MIDDLE.replace(false);
    let _ = STATE.lock().run(|context| {
        context.graph_abandon();
        if terminated {
            context.free_owned(owner);
        }
        Ok(())
    });
    if ENVIRONMENTS.fetch_sub(1, Ordering::AcqRel) == 1 {
        // Nobody is left to see its results.
        destroy(Some(exit::LIMIT));
    }
}

fn batch() -> OpenBatch {
    let batch = BATCH.with(Cell::get);
    if batch.generation == GENERATION.load(Ordering::Acquire) {
        batch
    } else {
        OpenBatch::default()
    }
}

pub fn batch_begin() -> Result<()> {
    if batch().open {
        return Err(Error::Batch(
            "a batch is already open: call batchSubmit() first".to_owned(),
        ));
    }
    BATCH.with(|b| {
        b.set(OpenBatch {
            open: true,
            any: false,
            generation: GENERATION.load(Ordering::Acquire),
        });
    });
    Ok(())
}

/// Fails unless a batch is open.
pub fn batch_required() -> Result<()> {
    if batch().open {
        return Ok(());
    }
    Err(Error::Batch(
        "no batch is open: call batchBegin() first".to_owned(),
    ))
}

pub fn batch_is_open() -> bool {
    batch().open
}

/// Notes that work was added, if a batch is open.
#[inline]
pub fn batch_touched() {
    BATCH.with(|b| {
        let mut batch = b.get();
        batch.any = true;
        b.set(batch);
    });
}

/// Ends the batch; whether anything was added to it.
pub fn batch_end() -> Result<bool> {
    batch_required()?;
    Ok(BATCH.with(|b| b.replace(OpenBatch::default())).any)
}
