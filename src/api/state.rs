//! The one device of the process, shared by all its JS environments (the main thread and workers).

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::completion;
use crate::context::Context;
use crate::device::{Settings, flag};
use crate::error::{Error, Result};

enum State {
    /// `initDevice` was not called yet.
    Absent,
    Ready(Box<Context>),
    /// `destroy` was called.
    Gone,
}

static STATE: Mutex<State> = Mutex::new(State::Absent);
/// Grows with every device, so that a thread's batch ends with the device that it was opened on.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static VALIDATING: AtomicBool = AtomicBool::new(false);
/// JS environments that have loaded the addon and live.
static ENVIRONMENTS: AtomicU64 = AtomicU64::new(0);

/// A thread's open batch. Work goes to the stream at once, so this is bookkeeping alone.
#[derive(Clone, Copy, Default)]
struct OpenBatch {
    open: bool,
    /// Whether anything was added.
    any: bool,
    generation: u64,
}

thread_local! {
    static BATCH: Cell<OpenBatch> = const { Cell::new(OpenBatch { open: false, any: false, generation: 0 }) };
}

/// Runs `body` on the device, every buffer in its place.
#[inline]
pub fn with<T>(body: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
    with_any_place(|context| {
        context.place()?;
        body(context)
    })
}

/// Runs `body` on the device, for calls that look where this buffer lies and no other. It need not be one.
#[inline]
pub fn with_placed<T>(handle: i32, body: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
    with_any_place(|context| {
        context.place_with(handle)?;
        body(context)
    })
}

/// Runs `body` on the device, for calls that do not look where buffers lie.
#[inline]
pub fn with_any_place<T>(body: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
    match &mut *STATE.lock() {
        State::Ready(context) => {
            context.timing.begin_call();
            body(context)
        }
        State::Absent => Err(Error::NoDevice(
            "there is no device yet: call initDevice() first".to_owned(),
        )),
        State::Gone => Err(Error::NoDevice(
            "the device is gone: destroy() was called; initDevice() makes a new one".to_owned(),
        )),
    }
}

/// Makes the device unless there is one, then runs `body` on it.
pub fn init<T>(
    settings: impl FnOnce() -> Result<Settings>,
    body: impl FnOnce(&mut Context) -> Result<T>,
) -> Result<T> {
    let mut state = STATE.lock();
    if let State::Ready(context) = &mut *state {
        context.device.check_alive()?;
        return body(context);
    }
    let settings = settings()?;
    let mut context = Box::new(Context::new(&settings)?);
    GENERATION.fetch_add(1, Ordering::AcqRel);
    VALIDATING.store(settings.validation, Ordering::Release);
    let result = body(&mut context);
    *state = State::Ready(context);
    result
}

/// Releases everything. Without a device there is nothing to do.
pub fn destroy() {
    let mut state = STATE.lock();
    if let State::Ready(context) = std::mem::replace(&mut *state, State::Gone) {
        context.close();
        // With the lock held: no promise of the next device may come in between.
        completion::finish();
    } else if GENERATION.load(Ordering::Acquire) == 0 {
        *state = State::Absent;
    }
}

/// The report of a failure, if it is one that is reported and there is a device.
/// `stack`: the JS stack of the call.
pub fn report(call: &str, error: &Error, stack: impl FnOnce() -> String) -> Option<PathBuf> {
    if !error.reports() {
        return None;
    }
    let stack = stack();
    match &*STATE.lock() {
        State::Ready(context) => context.report(call, error, &stack),
        _ => None,
    }
}

/// Validation messages since the last call, if `HELIOS_VALIDATION` is on.
pub fn validation_messages() -> Option<String> {
    if !VALIDATING.load(Ordering::Acquire) {
        return None;
    }
    match &mut *STATE.lock() {
        State::Ready(context) => {
            context.settle();
            context.device.instance.messages.take()
        }
        _ => None,
    }
}

/// Whether promises keep the stacks of their calls: `HELIOS_STACKS=1`, or while validation is on.
pub fn stacks() -> bool {
    static ASKED: OnceLock<bool> = OnceLock::new();
    VALIDATING.load(Ordering::Acquire) || *ASKED.get_or_init(|| flag("HELIOS_STACKS"))
}

pub fn environment_enters() {
    ENVIRONMENTS.fetch_add(1, Ordering::AcqRel);
}

/// The last environment to end takes the device with it: drivers must not be torn down under work
/// in flight. A worker's end leaves the others' device alone.
pub fn environment_leaves() {
    BATCH.with(|b| b.set(OpenBatch::default()));
    super::lend::forget();
    if let State::Ready(context) = &mut *STATE.lock() {
        context.graph_abandon();
    }
    if ENVIRONMENTS.fetch_sub(1, Ordering::AcqRel) == 1 {
        destroy();
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

/// Notes that work was added while a batch may be open.
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
