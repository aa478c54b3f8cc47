//! With the feature `seeded`: the thread of a group with its wait for the device left out, so that a proof can see it race.

use std::{env, fs, path::PathBuf};

const SOURCE: &str = "../../src/collective/thread.rs";
/// The wait.
const WAIT: &str = "!wait_for_device(group, job.after)? || ";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_SEEDED").is_none() {
        return;
    }
    println!("cargo::rerun-if-changed={SOURCE}");
    let source = fs::read_to_string(SOURCE).expect("the thread's source");
    assert_eq!(
        source.matches(WAIT).count(),
        1,
        "{SOURCE}: one wait for the device"
    );
    // What is included may not begin with comments on the whole.
    let lines = source.lines().filter(|line| !line.starts_with("//!"));
    let seeded = lines.collect::<Vec<_>>().join("\n").replace(WAIT, "");
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("cargo's folder"));
    fs::write(target.join("thread.rs"), seeded).expect("written");
}
