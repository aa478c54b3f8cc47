//! `HeliosError`, the class of every error that this package throws. Each is also an `Error`, `TypeError` or
//! `RangeError`.

use napi::sys;

use super::values::{clear_exception, made, set, string};
use crate::error::Result;

/// An error's class follows from its kind and cannot be `HeliosError` too, so `instanceof` tests the code that all of
/// them carry.
const SOURCE: &str = "(class HeliosError extends Error {
  constructor(message, { code = 'ERR_HELIOS_VULKAN', call = '', argument, value, report, rank } = {}) {
    super(message);
    Object.assign(this, { code, call });
    for (const [key, field] of Object.entries({ argument, value, report, rank }))
      if (field !== undefined) this[key] = field;
  }
  get name() { return 'HeliosError'; }
  static [Symbol.hasInstance](error) {
    return this === HeliosError
      ? error instanceof Error && typeof error.code === 'string' && error.code.startsWith('ERR_HELIOS_')
      : Function.prototype[Symbol.hasInstance].call(this, error);
  }
})";

/// Adds the class to the module's exports.
pub fn export(env: sys::napi_env, exports: sys::napi_value) -> Result<()> {
    let source = string(env, SOURCE)?;
    // SAFETY: `env` is live and the script a string of it.
    let run = |class| unsafe { sys::napi_run_script(env, source, class) };
    match made(env, "napi_run_script", run) {
        Ok(class) => set(env, exports, "HeliosError", Ok(class)),
        Err(_) => {
            // A runtime without script evaluation: `instanceof HeliosError` does not work there, the errors do.
            clear_exception(env);
            Ok(())
        }
    }
}
