//! A trace in the JSON form that Chrome's tracing and Perfetto read, written as events arrive.
//!
//! Source: "Trace Event Format" of the Chromium project: complete events (`X`), metadata (`M`), and flows from a
//! submission to the device's work (`s`, `f`). Times are microseconds since the start.
#![deny(unsafe_code)]

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Process numbers in the trace.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

pub struct Trace {
    out: BufWriter<File>,
    pub path: PathBuf,
    /// Number of events written.
    pub events: u64,
    /// The first failure; nothing is written after it.
    failure: Option<io::Error>,
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Trace {
    pub fn create(path: &Path, device: &str) -> io::Result<Self> {
        let mut trace = Self {
            out: BufWriter::with_capacity(1 << 20, File::create(path)?),
            path: path.to_owned(),
            events: 0,
            failure: None,
        };
        trace.write("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
        for (process, name) in [(HOST, "host"), (DEVICE, device)] {
            trace.event(&format!(
                "\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{process},\"args\":{{\"name\":{}}}",
                text(name)
            ));
        }
        for (thread, name) in [(1, "submissions"), (2, "commands")] {
            trace.event(&format!(
                "\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{DEVICE},\"tid\":{thread},\"args\":{{\"name\":\"{name}\"}}"
            ));
        }
        match trace.failure.take() {
            None => Ok(trace),
            Some(failure) => Err(failure),
        }
    }

    fn write(&mut self, text: &str) {
        if self.failure.is_none() {
            self.failure = self.out.write_all(text.as_bytes()).err();
        }
    }

    fn event(&mut self, fields: &str) {
        let comma = if self.events > 0 { ",\n" } else { "\n" };
        self.events += 1;
        self.write(&format!("{comma}{{{fields}}}"));
    }

    /// What a host thread did from `start` on, in nanoseconds since the trace began.
    pub fn host(&mut self, thread: u64, name: &str, start: f64, duration: f64, args: &str) {
        let (start, duration) = (start / 1e3, duration / 1e3);
        self.event(&format!(
            "\"ph\":\"X\",\"pid\":{HOST},\"tid\":{thread},\"name\":{},\"ts\":{start:.3},\"dur\":{duration:.3},\"args\":{{{args}}}",
            text(name)
        ));
    }

    /// Work of the device: whole submissions on one line, their commands on another.
    pub fn device(&mut self, whole: bool, name: &str, start: f64, duration: f64, args: &str) {
        let (start, duration) = (start / 1e3, duration / 1e3);
        let thread = if whole { 1 } else { 2 };
        self.event(&format!(
            "\"ph\":\"X\",\"pid\":{DEVICE},\"tid\":{thread},\"name\":{},\"ts\":{start:.3},\"dur\":{duration:.3},\"args\":{{{args}}}",
            text(name)
        ));
    }

    /// An arrow from a submission to the device's work for it.
    pub fn flow(&mut self, value: u64, thread: u64, submitted: f64, begun: f64) {
        let (submitted, begun) = (submitted / 1e3, begun / 1e3);
        self.event(&format!(
            "\"ph\":\"s\",\"cat\":\"submit\",\"name\":\"submission\",\"id\":{value},\"pid\":{HOST},\"tid\":{thread},\"ts\":{submitted:.3}"
        ));
        self.event(&format!(
            "\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"submit\",\"name\":\"submission\",\"id\":{value},\"pid\":{DEVICE},\"tid\":1,\"ts\":{begun:.3}"
        ));
    }

    /// Ends the file; `other` are the fields of `otherData`.
    pub fn finish(mut self, other: &str) -> io::Result<(PathBuf, u64)> {
        self.write(&format!("\n],\"otherData\":{{{other}}}}}\n"));
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.out.flush()?;
        Ok((self.path, self.events))
    }
}
