//! The calls under `helios-vk/distributed`: a group of processes, and its collectives.

use std::time::Duration;

use collectives::{Cause, Element, Failure, Kind, MAX_TEXT, Options, Phase};
use napi::Env;
use napi_derive::napi;

use super::convert::Arg;
use super::raise::{call, raised};
use super::state;
use super::values::{Object, Out, null};
use crate::collective::group;
use crate::context::{Context, Range};
use crate::error::{Error, Result};

/// What an MPI library is, without starting it. For a process that only looks: the library stays loaded.
///
/// Throws `ERR_HELIOS_NO_ENGINE` for what does not load, or is no MPI.
#[napi(
    js_name = "collectiveProbe",
    ts_args_type = "library: string",
    ts_return_type = "CollectiveLibrary"
)]
pub fn collective_probe(env: &Env, library: Arg) -> napi::Result<Out> {
    call(env, "collectiveProbe", || {
        let library = library.string("library")?;
        let found = collectives::probe(&library).map_err(|missing| {
            let text = format!("{}: {}", missing.library, missing.reason);
            Failure::new(Cause::NoEngine, text, None)
        })?;
        Object::new(env.raw())
            .string("library", &found.library)
            .string("abi", found.flavor.name())
            .string("version", &found.version)
            .done()
            .map(Out)
    })
}

/// Makes this process rank `rank` of `size` and starts MPI on a thread of its own; `collectiveStatus` says how it
/// goes. `libraries` are tried in turn; `text`, of at most 1024 bytes, is what all ranks get from rank 0; `limitMs`
/// is how long a collective may take. Use `init` of `helios-vk/distributed` instead.
#[napi(
    js_name = "collectiveStart",
    ts_args_type = "options: CollectiveStartOptions"
)]
pub fn collective_start(env: &Env, options: Arg) -> napi::Result<()> {
    call(env, "collectiveStart", || {
        let rank = options.property("rank")?.u32("rank")?;
        let size = options.property("size")?.u32("size")?;
        if rank >= size {
            let problem = format!("must be less than size ({size})");
            return Err(Error::range("rank", problem, rank));
        }
        let libraries = options.property("libraries")?.strings("libraries")?;
        let text = options.property("text")?.string("text")?;
        if text.len() > MAX_TEXT {
            let problem = format!("must be of at most {MAX_TEXT} bytes");
            return Err(Error::range("text", problem, text.len()));
        }
        let limit = options.property("limitMs")?.u32("limitMs")?;
        let options = Options {
            rank,
            size,
            libraries,
            text,
            limit: Duration::from_millis(limit.into()),
        };
        state::with(|context| context.join_group(options))
    })
}

/// How the group is: `called` is the number of the last call, `begun` of the last one whose turn has come, `ended` of
/// the last one that has ended; where these two differ, `call` says which it is and `forMs` for how long. `text` is rank 0's. Null without a
/// group. Waits for nothing, also while another thread waits for the device.
#[napi(
    js_name = "collectiveStatus",
    ts_return_type = "CollectiveStatus | null"
)]
pub fn collective_status(env: &Env) -> napi::Result<Out> {
    call(env, "collectiveStatus", || {
        let raw = env.raw();
        let Some(group) = group::current() else {
            return null(raw).map(Out);
        };
        let state = group.state.lock();
        let (ledger, text) = (&state.ledger, state.text.clone());
        let (phase, failure) = (ledger.phase, ledger.failure.clone());
        let (called, begun, ended) = (ledger.last, ledger.begun, ledger.ended);
        // What follows may run JavaScript.
        drop(state);
        let (number, name, elapsed) = match begun {
            Some((call, since)) => (call.number, call.to_string(), since.elapsed()),
            None => (0, String::new(), Duration::ZERO),
        };
        let error = match failure {
            Some(failure) => raised(raw, "init", &failure.into()),
            None => null(raw),
        };
        let phase = match phase {
            Phase::Starting => "starting",
            Phase::Ready => "ready",
            Phase::Left => "left",
        };
        Object::new(raw)
            .string("phase", phase)
            .value("error", error)
            .string("text", &text)
            .integer("called", called)
            .integer("begun", number)
            .integer("ended", ended)
            .string("call", &name)
            .integer("forMs", elapsed.as_millis() as u64)
            .done()
            .map(Out)
    })
}

/// Fails the group: what it has under way ends at once, and later calls throw this. May be called from any thread of
/// JavaScript, also while another one waits for the device. Without a group there is nothing to do.
#[napi(
    js_name = "collectiveAbort",
    ts_args_type = "code: HeliosErrorCode, message: string, rank?: number"
)]
pub fn collective_abort(env: &Env, code: Arg, message: Arg, rank: Arg) -> napi::Result<()> {
    call(env, "collectiveAbort", || {
        let cause = named("code", code, Cause::ALL, |cause| {
            let failure = Failure::new(cause, "", None);
            Error::from(failure).code().as_str()
        })?;
        let message = message.string("message")?;
        let rank = match rank.missing() {
            true => None,
            false => Some(rank.u32("rank")?),
        };
        if let Some(group) = group::current() {
            group.fail(Failure::new(cause, message, rank));
        }
        Ok(())
    })
}

fn named<T: Copy>(
    argument: &str,
    value: Arg,
    all: impl IntoIterator<Item = T>,
    name: impl Fn(T) -> &'static str,
) -> Result<T> {
    let text = value.string(argument)?;
    let mut known = Vec::new();
    for item in all {
        if name(item) == text {
            return Ok(item);
        }
        known.push(name(item));
    }
    let problem = format!("must be one of {}", known.join(", "));
    Err(Error::range(argument, problem, text))
}

/// A collective on `count` elements from element `offset` of the buffer on, by default all to its end; its timeline
/// value. See `Group` of `helios-vk/distributed`.
#[napi(
    ts_args_type = "kind: 'allReduce' | 'reduceScatter' | 'allGather' | 'broadcast', buffer: BufferHandle, options?: CollectiveOptions",
    ts_return_type = "TimelineValue"
)]
pub fn collective(env: &Env, kind: Arg, buffer: Arg, options: Arg) -> napi::Result<f64> {
    let name = kind
        .string("kind")
        .ok()
        .and_then(|text| Kind::ALL.into_iter().find(|kind| kind.name() == text));
    call(env, name.map_or("collective", Kind::name), || {
        let kinds = Kind::ALL.into_iter().filter(|&kind| kind != Kind::Leave);
        let kind = named("kind", kind, kinds, Kind::name)?;
        let buffer = buffer.handle("buffer", "buffer")?;
        let mut range = Range {
            buffer,
            offset: 0,
            count: None,
            element: Element::F32,
        };
        let mut root = 0;
        if !options.missing() {
            range.offset = options.property("offset")?.size_or("offset", 0)?;
            let count = options.property("count")?;
            if !count.missing() {
                range.count = Some(count.size("count")?);
            }
            let element = options.property("type")?;
            if !element.missing() {
                range.element = named("type", element, Element::ALL, Element::name)?;
            }
            root = options.property("root")?.u32_or("root", 0)?;
        }
        let value = state::with(|context| context.collective(kind, range, root))?;
        Ok(value as f64)
    })
}

/// Leaves the group together with all other ranks, behind everything called so far; the timeline value at which all
/// have left. MPI has ended then, and cannot start again in this process.
#[napi(js_name = "collectiveLeave", ts_return_type = "TimelineValue")]
pub fn collective_leave(env: &Env) -> napi::Result<f64> {
    call(env, "destroy", || {
        state::with(Context::leave_group).map(|value| value as f64)
    })
}

/// Forgets a group that was left or has failed, behind everything called so far.
#[napi(js_name = "collectiveForget")]
pub fn collective_forget(env: &Env) -> napi::Result<()> {
    call(env, "destroy", || state::with(Context::forget_group))
}
