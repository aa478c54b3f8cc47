//! A clock that stands for the device's timeline semaphore.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

#[derive(Default)]
struct State {
    reached: u64,
    lost: bool,
}

#[derive(Default)]
pub struct Timeline {
    state: Mutex<State>,
    moved: Condvar,
}

impl Timeline {
    pub fn seen(&self) -> u64 {
        self.state.lock().reached
    }

    pub fn advance(&self, value: u64) {
        let mut state = self.state.lock();
        state.reached = state.reached.max(value);
        self.moved.notify_all();
    }

    pub fn lose(&self) {
        self.state.lock().lost = true;
        self.moved.notify_all();
    }

    pub fn wait_for(&self, value: u64, time: Duration) -> Result<bool> {
        let mut state = self.state.lock();
        if state.reached >= value {
            return Ok(true);
        }
        if state.lost {
            return Err(Error::DeviceLost("here".to_owned()));
        }
        self.moved.wait_for(&mut state, time);
        Ok(state.reached >= value)
    }
}
