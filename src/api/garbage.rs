//! Lists of weak references. JavaScript that frees device memory when its objects become garbage learns here, in the
//! middle of a program, which of them have. A `FinalizationRegistry` reports that only between turns of the event loop.

use std::cell::RefCell;

use napi::{Env, ValueType, sys};
use napi_derive::napi;

use super::convert::Arg;
use super::raise::call;
use super::results::{self, drop_reference, scoped, value_of};
use super::values::check;
use crate::error::{Error, Result};

type List = Vec<sys::napi_ref>;

thread_local! {
    /// This environment's lists of weak references.
    static LISTS: RefCell<Vec<List>> = const { RefCell::new(Vec::new()) };
}

/// The environment ends; its references end with it.
pub fn leave() {
    LISTS.set(Vec::new());
}

/// Runs `body` on the list with this number.
fn with<T>(number: Arg, body: impl FnOnce(&mut List) -> Result<T>) -> Result<T> {
    let index = number.integer("list", u64::from(u32::MAX))?;
    LISTS.with_borrow_mut(|lists| match lists.get_mut(index as usize) {
        Some(list) => body(list),
        None => Err(Error::range(
            "list",
            "must be one that weakList() has made".to_owned(),
            index,
        )),
    })
}

/// Makes a list of weak references. Returns its number, which is valid only in this worker.
#[napi(js_name = "weakList", ts_return_type = "number")]
pub fn weak_list(env: &Env) -> napi::Result<u32> {
    call(env, "weakList", || {
        Ok(LISTS.with_borrow_mut(|lists| {
            lists.push(Vec::new());
            lists.len() as u32 - 1
        }))
    })
}

/// Appends an object to a list.
#[napi(js_name = "weakAdd", ts_args_type = "list: number, object: object")]
pub fn weak_add(env: &Env, list: Arg, object: Arg) -> napi::Result<()> {
    call(env, "weakAdd", || {
        if !matches!(object.kind(), ValueType::Object | ValueType::Function) {
            return Err(object.wrong("object", "an object"));
        }
        with(list, |list| {
            let mut reference = std::ptr::null_mut();
            // SAFETY: the object is of `env`. The reference is weak.
            let status =
                unsafe { sys::napi_create_reference(env.raw(), object.raw(), 0, &mut reference) };
            check(env.raw(), "napi_create_reference", status)?;
            list.push(reference);
            Ok(())
        })
    })
}

/// Removes from a list the objects whose byte in `gone` is 1, and those that have become garbage, whose bytes are set
/// to 1. The rest keep their order. `gone` has one byte for each object of the list. With `collect` the runtime
/// collects garbage first; V8 does so within the call.
#[napi(
    js_name = "weakSweep",
    ts_args_type = "list: number, gone: Uint8Array, collect?: boolean"
)]
pub fn weak_sweep(env: &Env, list: Arg, gone: Arg, collect: Arg) -> napi::Result<()> {
    call(env, "weakSweep", || {
        if collect.flag_or("collect", false)? {
            results::collect(env.raw());
        }
        let gone = gone.bytes("gone")?;
        with(list, |list| {
            if gone.len != list.len() {
                let expected = format!("must have {} bytes, one for each object", list.len());
                return Err(Error::range("gone", expected, gone.len));
            }
            let mut index = 0;
            scoped(env.raw(), || {
                list.retain(|&reference| {
                    // SAFETY: `gone` has a byte for each, and is this call's: no JavaScript runs in it. The reference is
                    // of `env` (an environment's end takes its lists along) and not used again once it has been dropped.
                    unsafe {
                        let mark = gone.data.add(index);
                        index += 1;
                        let stays = *mark == 0 && value_of(env.raw(), reference) != Ok(None);
                        if !stays {
                            drop_reference(env.raw(), reference);
                            *mark = 1;
                        }
                        stays
                    }
                });
            });
            Ok(())
        })
    })
}
