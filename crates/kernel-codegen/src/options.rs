//! Word 1 of a program: its template, float controls and layout.

use rspirv::spirv::{Capability, ExecutionMode};

/// How elements are spread over invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// Each element by itself.
    Flat,
    /// A workgroup for each row, or an invocation: reductions along the row, and elements that depend on them.
    Row,
    /// Reductions over the rows: a value for each column.
    Column,
}

impl Template {
    /// Push constants before the shape: the count of elements; rows and columns; rows, columns, and rows of a slice.
    pub fn sizes(self) -> usize {
        match self {
            Self::Flat => 1,
            Self::Row => 2,
            Self::Column => 3,
        }
    }
}

/// What a device is asked to keep in f32 arithmetic, as bits: by itself a driver may take it that there are no NaN and no infinities,
/// and may make zeros of denormals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FloatControls(u32);

impl FloatControls {
    /// Bit 0: NaN, infinities and signs of zeros are kept; 1: denormals are; 2: denormals become zeros.
    const MODES: [(Capability, ExecutionMode); 3] = [
        (
            Capability::SignedZeroInfNanPreserve,
            ExecutionMode::SignedZeroInfNanPreserve,
        ),
        (Capability::DenormPreserve, ExecutionMode::DenormPreserve),
        (
            Capability::DenormFlushToZero,
            ExecutionMode::DenormFlushToZero,
        ),
    ];

    /// Bit 3: a driver does not see numbers of f32, which it might fold.
    const HIDES: u32 = 8;

    /// None where bits are unknown, or denormals are to be kept and flushed.
    pub fn of(bits: u32) -> Option<Self> {
        (bits < 16 && bits & 6 != 6).then_some(Self(bits))
    }

    pub fn hides_constants(self) -> bool {
        self.0 & Self::HIDES != 0
    }

    /// What a module declares.
    pub fn modes(self) -> Vec<(Capability, ExecutionMode)> {
        let all = Self::MODES.iter().enumerate();
        let set = all.filter(|(bit, _)| self.0 >> bit & 1 == 1);
        set.map(|(_, &mode)| mode).collect()
    }
}

/// How the elements of a program go to invocations, and what is left to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Elements that an invocation takes at a time: 1, 2 or 4. Dense operands are loaded and stored as vectors of so many.
    pub width: u32,
    /// Of the flat template: two vectors are loaded before either is stored.
    pub pairs: bool,
    /// As GPUs do, and not every CPU driver: the device's conversions of f16 round to nearest even and keep small numbers, its
    /// functions make NaN of NaN, and infinities go through quotients. Else all that is settled by further instructions.
    pub native: bool,
}

impl Layout {
    /// None where bits are unknown. Bits 0 and 1: 0 for four elements, else how many; 2: pairs; 3: native.
    pub fn of(bits: u32, template: Template) -> Option<Self> {
        let width = *[4, 1, 2].get((bits & 3) as usize)?;
        let of_flat = template == Template::Flat || bits & 7 == 0;
        (bits < 16 && of_flat).then_some(Self {
            width,
            pairs: bits & 4 != 0,
            native: bits & 8 != 0,
        })
    }
}
