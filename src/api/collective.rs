//! The calls that `helios-vk/distributed` is built on: a group of processes, and its collectives.

use std::time::Duration;

use collectives::nccl::{self, library::UniqueId};
use collectives::{Cause, Element, Failure, Kind, MAX_TEXT, Member, Options, Phase};
use napi::Env;
use napi_derive::napi;

use super::convert::Arg;
use super::raise::{call, raised};
use super::state;
use super::values::{Object, Out, null};
use crate::collective::group;
use crate::context::{Context, Engine, Range};
use crate::error::{Error, Result};

/// Says what library of an engine this is, without starting the engine. The library stays loaded, so call this in a
/// process that does nothing else.
///
/// Throws `ERR_HELIOS_NO_ENGINE` if the library does not load or belongs to another engine.
#[napi(
    js_name = "collectiveProbe",
    ts_args_type = "library: string, engine?: 'mpi' | 'nccl'",
    ts_return_type = "CollectiveLibrary"
)]
pub fn collective_probe(env: &Env, library: Arg, engine: Arg) -> napi::Result<Out> {
    call(env, "collectiveProbe", || {
        let library = library.string("library")?;
        let found = match is_nccl(engine)? {
            true => nccl::library::probe(&library).map(|version| ("nccl", version)),
            false => collectives::probe(&library).map(|f| (f.flavor.name(), f.version)),
        };
        let (abi, version) = found.map_err(|missing| {
            let text = format!("{}: {}", missing.library, missing.reason);
            Failure::new(Cause::NoEngine, text, None)
        })?;
        Object::new(env.raw())
            .string("library", &library)
            .string("abi", abi)
            .string("version", &version)
            .done()
            .map(Out)
    })
}

/// Whether `engine` names NCCL; left out, it is MPI.
fn is_nccl(engine: Arg) -> Result<bool> {
    Ok(!engine.missing() && named("engine", engine, ["mpi", "nccl"], |name| name)? == "nccl")
}

/// Loads the first of these libraries that is an NCCL. With `unique`, also returns the identifier that rank 0 sends to
/// all other ranks, in hexadecimal.
///
/// Use `init` of `helios-vk/distributed` instead.
#[napi(
    js_name = "collectiveNccl",
    ts_args_type = "libraries: string[], unique: boolean",
    ts_return_type = "{ library: string, version: string, id: string }"
)]
pub fn collective_nccl(env: &Env, libraries: Arg, unique: Arg) -> napi::Result<Out> {
    call(env, "init", || {
        let nccl = nccl::library::find(&libraries.strings("libraries")?)?;
        let id = match unique.flag_or("unique", false)? {
            true => nccl.unique_id()?.to_text(),
            false => String::new(),
        };
        Object::new(env.raw())
            .string("library", &nccl.library)
            .string("version", &nccl.version)
            .string("id", &id)
            .done()
            .map(Out)
    })
}

/// Makes this process rank `rank` of `size` and starts the engine on a thread of its own; `collectiveStatus` reports
/// its progress. `libraries` are tried in turn; `limitMs` is how long a collective may take.
///
/// For MPI, `text`, of at most 1024 bytes, is what rank 0 sends to all ranks. For NCCL, `id` is rank 0's
/// (`collectiveNccl`), and `drivers` are libraries of CUDA's driver.
///
/// Use `init` of `helios-vk/distributed` instead.
#[napi(
    js_name = "collectiveStart",
    ts_args_type = "options: CollectiveStartOptions"
)]
pub fn collective_start(env: &Env, options: Arg) -> napi::Result<()> {
    call(env, "init", || {
        let rank = options.property("rank")?.u32("rank")?;
        let size = options.property("size")?.u32("size")?;
        if rank >= size {
            let problem = format!("must be less than size ({size})");
            return Err(Error::range("rank", problem, rank));
        }
        let libraries = options.property("libraries")?.strings("libraries")?;
        let limit = options.property("limitMs")?.u32("limitMs")?;
        let limit = Duration::from_millis(limit.into());
        if is_nccl(options.property("engine")?)? {
            let text = options.property("id")?.string("id")?;
            let Some(id) = UniqueId::from_text(&text) else {
                return Err(Error::range("id", "must come from collectiveNccl", text));
            };
            let drivers = options.property("drivers")?.strings("drivers")?;
            let engine = Engine::Nccl(nccl::rank::Options {
                rank,
                size,
                libraries,
                drivers,
                id,
                limit,
            });
            return state::with(|context| context.join_group(engine));
        }
        let text = options.property("text")?.string("text")?;
        if text.len() > MAX_TEXT {
            let problem = format!("must be of at most {MAX_TEXT} bytes");
            return Err(Error::range("text", problem, text.len()));
        }
        let engine = Engine::Mpi(Options {
            rank,
            size,
            libraries,
            text,
            limit,
        });
        state::with(|context| context.join_group(engine))
    })
}

/// The group's state, or null without a group. `called`, `begun` and `ended` are the numbers of the last call made, the
/// last one started and the last one finished. Where the last two differ, `call` names the call that is running, and
/// `forMs` says for how long. `text` is rank 0's.
///
/// Never blocks, not even while another thread waits for the device.
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
        // Building the result may run JavaScript.
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

/// Fails the group: its running calls end at once, and later calls throw this error. Any JavaScript thread may call it,
/// also while another one waits for the device. Without a group it does nothing.
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

/// Runs a collective on `count` elements of the buffer from element `offset` on, by default all to its end. Returns its
/// timeline value. See `Group` of `helios-vk/distributed`.
#[napi(
    ts_args_type = "kind: 'allReduce' | 'reduceScatter' | 'allGather' | 'broadcast' | 'allToAll', buffer: BufferHandle, options?: CollectiveOptions",
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

/// Leaves the group together with all other ranks, after everything called so far. Returns the timeline value at which
/// all have left. MPI is finished then and cannot start again in this process.
#[napi(js_name = "collectiveLeave", ts_return_type = "TimelineValue")]
pub fn collective_leave(env: &Env) -> napi::Result<f64> {
    call(env, "destroy", || {
        state::with(Context::leave_group).map(|value| value as f64)
    })
}

/// Forgets a group that was left or has failed, after everything called so far; if the device is gone, the group is
/// too. Returns whether MPI has been started in this process, which is possible only once.
#[napi(js_name = "collectiveForget")]
pub fn collective_forget(env: &Env) -> napi::Result<bool> {
    call(env, "destroy", || match group::current() {
        Some(_) => state::with(Context::forget_group),
        None => Ok(()),
    })?;
    Ok(Member::started())
}
