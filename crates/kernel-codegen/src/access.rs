//! Operands in memory: from an element's index to the words of its buffer.

use rspirv::spirv::{GlslStd450Op, Op as S, StorageClass};

use super::module::{Id, Module};
use super::program::{Access, Program, Storage, Type};
use super::scalar::Scalar;

/// Elements that an invocation of the templates of matrices takes at a time.
pub const WIDTH: u32 = 4;

/// A buffer and its push constants, as loaded.
struct Operand {
    variable: Id,
    /// Words of the buffer's elements: vectors where it is accessed by vectors.
    vector: u32,
    storage: Storage,
    access: Access,
    offset: Id,
    /// The period, or strides.
    rest: Vec<Id>,
}

/// All operands of a program.
pub struct Operands {
    inputs: Vec<Operand>,
    outputs: Vec<Operand>,
    shape: Vec<Id>,
    /// Values of the scalars.
    pub scalars: Vec<Id>,
    /// The template's own push constants.
    pub sizes: Vec<Id>,
    /// See `unseen_zero`.
    zero: Option<Id>,
    /// Elements of a vector operand that an invocation takes at a time.
    width: u32,
    native: bool,
}

/// Indices of elements, and their coordinates once something needs them.
pub struct Elements {
    indices: Vec<Id>,
    /// Of a matrix: the row of all of them and the column of the first.
    matrix: Option<(Id, Id)>,
    coordinates: Vec<Option<Vec<Id>>>,
}

fn u(m: &mut Module, op: S, args: &[Id]) -> Id {
    m.value(op, Type::U32, 1, args)
}

impl Elements {
    /// `width` elements from `first` on, of one row where they are a matrix's.
    pub fn new(m: &mut Module, first: Id, width: u32, matrix: Option<(Id, Id)>) -> Self {
        let mut indices = vec![first];
        for i in 1..width {
            let i = m.word(i);
            indices.push(u(m, S::IAdd, &[first, i]));
        }
        Self {
            matrix,
            coordinates: vec![None; indices.len()],
            indices,
        }
    }

    /// How many.
    pub fn width(&self) -> u32 {
        self.indices.len() as u32
    }

    /// The indices as one value.
    pub fn index(&self, m: &mut Module) -> Id {
        join(m, &self.indices)
    }
}

/// One value of several words.
fn join(m: &mut Module, parts: &[Id]) -> Id {
    join_as(m, Type::U32, parts, parts.len() as u32)
}

/// One vector of several shorter ones.
fn join_as(m: &mut Module, ty: Type, parts: &[Id], width: u32) -> Id {
    match parts {
        [one] => *one,
        _ => m.value(S::CompositeConstruct, ty, width, parts),
    }
}

/// The words of a value.
fn split(m: &mut Module, value: Id, width: u32) -> Vec<Id> {
    parts(m, Type::U32, value, width)
}

/// The components of a value.
pub fn parts(m: &mut Module, ty: Type, value: Id, width: u32) -> Vec<Id> {
    if width == 1 {
        return vec![value];
    }
    (0..width)
        .map(|i| m.value(S::CompositeExtract, ty, 1, &[value, i]))
        .collect()
}

impl Operands {
    /// A word of 0 that a driver cannot know to be one: the highest bit of a count of elements or rows, of which no buffer has 2^31.
    pub fn unseen_zero(&self, m: &mut Module, width: u32) -> Id {
        let zero = self.zero.unwrap_or_else(|| m.word(0));
        join(m, &vec![zero; width as usize])
    }

    /// Declares buffers, inputs first, and loads the push constants. Begins no block: one is open.
    pub fn declare(m: &mut Module, program: &Program) -> Self {
        let block = m.push_constants(program.push_words());
        let mut member = 0;
        let mut next = |m: &mut Module, ty: Type| {
            let word = m.ty(Type::U32, 1);
            let pointer = m.pointer(StorageClass::PushConstant, word);
            let index = m.word(member);
            member += 1;
            let at = m.result(S::AccessChain, pointer, &[block, index]);
            let bits = u(m, S::Load, &[at]);
            match ty {
                Type::U32 => bits,
                Type::Bool => {
                    let zero = m.word(0);
                    m.value(S::INotEqual, Type::Bool, 1, &[bits, zero])
                }
                _ => m.value(S::Bitcast, ty, 1, &[bits]),
            }
        };
        let sizes: Vec<Id> = (0..program.template.sizes())
            .map(|_| next(m, Type::U32))
            .collect();
        let shape: Vec<Id> = (0..program.rank).map(|_| next(m, Type::U32)).collect();
        let mut binding = 0;
        let width = program.layout.width;
        let mut operand = |m: &mut Module, storage: Storage, access: Access| {
            let vector = match access {
                _ if access.is_vector() => width.div_ceil(storage.per_word()),
                _ => 1,
            };
            let variable = m.buffer(binding, vector);
            binding += 1;
            let offset = next(m, Type::U32);
            let words = access.push_words(program.rank);
            let rest = (1..words).map(|_| next(m, Type::U32)).collect();
            Operand {
                variable,
                vector,
                storage,
                access,
                offset,
                rest,
            }
        };
        let inputs = program.inputs.iter();
        let inputs: Vec<_> = inputs.map(|i| operand(m, i.storage, i.access)).collect();
        let outputs = program.outputs.iter();
        let outputs: Vec<_> = outputs.map(|o| operand(m, o.storage, o.access)).collect();
        let scalars = program.scalars.iter().map(|&ty| next(m, ty)).collect();
        // Sizes that are divided by: at least 1, so that no program divides by 0.
        let one = m.word(1);
        let at_least_one = |m: &mut Module, x: Id| {
            let zero = m.word(0);
            let none = m.value(S::IEqual, Type::Bool, 1, &[x, zero]);
            u(m, S::Select, &[none, one, x])
        };
        let shape = shape.into_iter().map(|x| at_least_one(m, x)).collect();
        let mut operands = Self {
            inputs,
            outputs,
            shape,
            scalars,
            zero: (program.controls.hides_constants()).then(|| {
                let bits = m.word(31);
                u(m, S::ShiftRightLogical, &[sizes[0], bits])
            }),
            sizes,
            width,
            native: program.layout.native,
        };
        for input in &mut operands.inputs {
            if matches!(input.access, Access::Period | Access::Tiled) {
                input.rest[0] = at_least_one(m, input.rest[0]);
            }
        }
        operands
    }

    /// The coordinates of element `j`.
    fn coordinates(&self, m: &mut Module, elements: &mut Elements, j: usize) -> Vec<Id> {
        if let Some(known) = &elements.coordinates[j] {
            return known.clone();
        }
        let mut rest = elements.indices[j];
        let mut coordinates = vec![rest; self.shape.len()];
        for (d, &size) in self.shape.iter().enumerate().rev() {
            if d == 0 {
                coordinates[0] = rest;
                break;
            }
            coordinates[d] = u(m, S::UMod, &[rest, size]);
            rest = u(m, S::UDiv, &[rest, size]);
        }
        elements.coordinates[j] = Some(coordinates.clone());
        coordinates
    }

    /// Where element `j` of an operand lies, in elements.
    fn place(&self, m: &mut Module, operand: &Operand, elements: &mut Elements, j: usize) -> Id {
        let i = elements.indices[j];
        match operand.access {
            Access::Scalar => operand.offset,
            Access::Dense | Access::Shifted => u(m, S::IAdd, &[operand.offset, i]),
            Access::Period | Access::Tiled => {
                let i = u(m, S::UMod, &[i, operand.rest[0]]);
                u(m, S::IAdd, &[operand.offset, i])
            }
            Access::Strided | Access::Lines => {
                let coordinates = self.coordinates(m, elements, j);
                let mut sum = operand.offset;
                for (&coordinate, &stride) in coordinates.iter().zip(&operand.rest) {
                    let product = u(m, S::IMul, &[coordinate, stride]);
                    sum = u(m, S::IAdd, &[sum, product]);
                }
                sum
            }
            Access::OfRow | Access::OfColumn => {
                let (row, column) = elements.matrix.expect("only templates of matrices");
                if operand.access == Access::OfRow {
                    let row = u(m, S::IMul, &[row, operand.rest[0]]);
                    return u(m, S::IAdd, &[operand.offset, row]);
                }
                let at = u(m, S::IAdd, &[operand.offset, column]);
                let j = m.word(j as u32);
                u(m, S::IAdd, &[at, j])
            }
        }
    }

    /// The words of input `k` for these elements, as values of its type.
    pub fn load(&self, m: &mut Module, k: usize, elements: &mut Elements) -> Id {
        let operand = &self.inputs[k];
        let width = elements.width();
        let whole = width > 1 && width >= operand.storage.per_word();
        let bits = if operand.access.is_vector() && width == self.width && whole {
            let at = self.place(m, operand, elements, 0);
            let pointer = self.vector_at(m, operand, at);
            let words = m.value(S::Load, Type::U32, operand.vector, &[pointer]);
            if self.native && operand.storage == Storage::F16 {
                return unpack_halves(m, words, width);
            }
            if operand.storage == Storage::Bf16 {
                return unpack_bf16(m, words, width);
            }
            match operand.storage.per_word() {
                4 => unpack_bytes(m, words),
                2 => unpair(m, words, width),
                _ => words,
            }
        } else if matches!(operand.access, Access::Scalar | Access::OfRow) {
            let at = self.place(m, operand, elements, 0);
            let one = self.load_one(m, operand, at);
            join(m, &vec![one; width as usize])
        } else {
            let parts: Vec<Id> = (0..width as usize)
                .map(|j| {
                    let at = self.place(m, operand, elements, j);
                    self.load_one(m, operand, at)
                })
                .collect();
            join(m, &parts)
        };
        let mut scalar = Scalar::new(m, width, self.native);
        match operand.storage {
            Storage::U32 | Storage::U8 => bits,
            Storage::I8 => scalar.of_signed_byte(bits),
            Storage::F32 | Storage::I32 => {
                let ty = operand.storage.value();
                m.value(S::Bitcast, ty, width, &[bits])
            }
            Storage::Bool => scalar.convert(Type::U32, Type::Bool, bits),
            // Halves that are loaded one by one are not worth a second way to convert them.
            Storage::F16 => scalar.of_half(false, bits),
            Storage::Bf16 => scalar.of_half(true, bits),
        }
    }

    /// A pointer to the vector that begins with element `at`, a multiple of the width.
    fn vector_at(&self, m: &mut Module, operand: &Operand, at: Id) -> Id {
        let log = m.word(self.width.ilog2());
        let at = u(m, S::ShiftRightLogical, &[at, log]);
        operand.pointer(m, at, None)
    }

    /// The bits of one element.
    fn load_one(&self, m: &mut Module, operand: &Operand, at: Id) -> Id {
        let pointer = operand.word_of(m, at);
        let word = u(m, S::Load, &[pointer]);
        if operand.storage.per_word() == 1 {
            return word;
        }
        let shift = operand.shift_of(m, at);
        let low = m.word(operand.mask());
        let shifted = u(m, S::ShiftRightLogical, &[word, shift]);
        u(m, S::BitwiseAnd, &[shifted, low])
    }

    /// Writes output `k` of these elements.
    pub fn store(&self, m: &mut Module, k: usize, elements: &mut Elements, value: Id) {
        let operand = &self.outputs[k];
        let width = elements.width();
        let mut scalar = Scalar::new(m, width, self.native);
        if operand.access.is_vector() && width == self.width && width > 1 {
            let at = self.place(scalar.m, operand, elements, 0);
            let pointer = self.vector_at(scalar.m, operand, at);
            if operand.storage == Storage::Bf16 && self.native {
                return store_bf16(scalar, pointer, value);
            }
            let words = match operand.storage {
                Storage::F16 if self.native => pack_halves(scalar.m, value, width),
                Storage::F16 | Storage::Bf16 => {
                    let halves = scalar.round_to_half(operand.storage, value);
                    pair(scalar.m, halves, width)
                }
                Storage::U8 | Storage::I8 => {
                    let words = scalar.words_of(operand.storage, value);
                    pack_bytes(scalar.m, words)
                }
                _ => scalar.words_of(operand.storage, value),
            };
            m.effect(S::Store, &[pointer, words]);
            return;
        }
        let bits = match operand.storage.is_half() {
            true => scalar.round_to_half(operand.storage, value),
            false => scalar.words_of(operand.storage, value),
        };
        for (j, word) in split(m, bits, width).into_iter().enumerate() {
            let at = self.place(m, operand, elements, j);
            let pointer = operand.word_of(m, at);
            if operand.storage.per_word() == 1 {
                m.effect(S::Store, &[pointer, word]);
                continue;
            }
            // The other elements of the word are this invocation's as well, or nobody's.
            let shift = operand.shift_of(m, at);
            let low = m.word(operand.mask());
            let word = u(m, S::BitwiseAnd, &[word, low]);
            let old = u(m, S::Load, &[pointer]);
            let mask = u(m, S::ShiftLeftLogical, &[low, shift]);
            let mask = u(m, S::Not, &[mask]);
            let kept = u(m, S::BitwiseAnd, &[old, mask]);
            let new = u(m, S::ShiftLeftLogical, &[word, shift]);
            let both = u(m, S::BitwiseOr, &[kept, new]);
            m.effect(S::Store, &[pointer, both]);
        }
    }
}

impl Operand {
    /// How far up element `at` is within its word, of elements that are less than one.
    fn shift_of(&self, m: &mut Module, at: Id) -> Id {
        let per_word = self.storage.per_word();
        let (last, log) = (m.word(per_word - 1), m.word((32 / per_word).ilog2()));
        let part = u(m, S::BitwiseAnd, &[at, last]);
        u(m, S::ShiftLeftLogical, &[part, log])
    }

    /// The bits of an element that is less than a word.
    fn mask(&self) -> u32 {
        (1 << (32 / self.storage.per_word())) - 1
    }

    /// A pointer to element `at` of the buffer's array, or to a word of it.
    fn pointer(&self, m: &mut Module, at: Id, word: Option<Id>) -> Id {
        let width = if word.is_some() { 1 } else { self.vector };
        let to = m.ty(Type::U32, width);
        let ty = m.pointer(StorageClass::StorageBuffer, to);
        let zero = m.word(0);
        let mut operands = vec![self.variable, zero, at];
        operands.extend(word);
        m.result(S::AccessChain, ty, &operands)
    }

    /// A pointer to the word in which element `at` lies.
    fn word_of(&self, m: &mut Module, at: Id) -> Id {
        let mut word = at;
        let log = self.storage.per_word().ilog2();
        if log > 0 {
            let log = m.word(log);
            word = u(m, S::ShiftRightLogical, &[at, log]);
        }
        if self.vector == 1 {
            return self.pointer(m, word, None);
        }
        let (log, last) = (m.word(self.vector.ilog2()), m.word(self.vector - 1));
        let part = u(m, S::BitwiseAnd, &[word, last]);
        let vector = u(m, S::ShiftRightLogical, &[word, log]);
        self.pointer(m, vector, Some(part))
    }
}

/// A word to its four bytes, each in a word of its own.
fn unpack_bytes(m: &mut Module, word: Id) -> Id {
    let four = m.value(
        S::CompositeConstruct,
        Type::U32,
        4,
        &[word, word, word, word],
    );
    let (shifts, low) = (m.words(&[0, 8, 16, 24]), m.constant(Type::U32, 0xff, 4));
    let shifted = m.value(S::ShiftRightLogical, Type::U32, 4, &[four, shifts]);
    m.value(S::BitwiseAnd, Type::U32, 4, &[shifted, low])
}

/// The low bytes of four words to one word.
fn pack_bytes(m: &mut Module, words: Id) -> Id {
    let (shifts, low) = (m.words(&[0, 8, 16, 24]), m.constant(Type::U32, 0xff, 4));
    let bytes = m.value(S::BitwiseAnd, Type::U32, 4, &[words, low]);
    let shifted = m.value(S::ShiftLeftLogical, Type::U32, 4, &[bytes, shifts]);
    let parts = split(m, shifted, 4);
    let or = |m: &mut Module, a, b| u(m, S::BitwiseOr, &[a, b]);
    let (low, high) = (or(m, parts[0], parts[1]), or(m, parts[2], parts[3]));
    or(m, low, high)
}

/// Words to twice as many halves, each in a word of its own.
fn unpair(m: &mut Module, words: Id, width: u32) -> Id {
    let doubled = match width {
        2 => m.value(S::CompositeConstruct, Type::U32, 2, &[words, words]),
        _ => m.value(S::VectorShuffle, Type::U32, 4, &[words, words, 0, 0, 1, 1]),
    };
    let shifts = [0, 16, 0, 16];
    let (shift, low) = (m.words(&shifts[..width as usize]), {
        m.constant(Type::U32, 0xffff, width)
    });
    let shifted = m.value(S::ShiftRightLogical, Type::U32, width, &[doubled, shift]);
    m.value(S::BitwiseAnd, Type::U32, width, &[shifted, low])
}

/// Words to twice as many bf16, as f32: a half in the upper bits of a word is one.
fn unpack_bf16(m: &mut Module, words: Id, width: u32) -> Id {
    let sixteen = m.constant(Type::U32, 16, width / 2);
    let mask = m.constant(Type::U32, 0xffff_0000, width / 2);
    let low = m.value(S::ShiftLeftLogical, Type::U32, width / 2, &[words, sixteen]);
    let high = m.value(S::BitwiseAnd, Type::U32, width / 2, &[words, mask]);
    let bits = match width {
        2 => m.value(S::CompositeConstruct, Type::U32, 2, &[low, high]),
        _ => m.value(S::VectorShuffle, Type::U32, 4, &[low, high, 0, 2, 1, 3]),
    };
    m.value(S::Bitcast, Type::F32, width, &[bits])
}

/// The even and the odd components of a value.
fn halves_of(m: &mut Module, value: Id, width: u32) -> [Id; 2] {
    [0, 1].map(|first| match width {
        2 => m.value(S::CompositeExtract, Type::U32, 1, &[value, first]),
        _ => m.value(
            S::VectorShuffle,
            Type::U32,
            2,
            &[value, value, first, first + 2],
        ),
    })
}

/// Halves in the low bits of words to half as many words.
fn pair(m: &mut Module, halves: Id, width: u32) -> Id {
    let [low, high] = halves_of(m, halves, width);
    let shift = m.constant(Type::U32, 16, width / 2);
    let high = m.value(S::ShiftLeftLogical, Type::U32, width / 2, &[high, shift]);
    m.value(S::BitwiseOr, Type::U32, width / 2, &[low, high])
}

/// Stores bf16 that are rounded in the high halves of their words. One look for all: a sum with a NaN is one (and so are some
/// without, which lose nothing but time), and what is no NaN needs no look of its own.
fn store_bf16(scalar: Scalar, pointer: Id, value: Id) {
    let width = scalar.width;
    let mut sums = parts(scalar.m, Type::F32, value, width);
    while sums.len() > 1 {
        let mut add = |pair: &[Id]| scalar.m.value(S::FAdd, Type::F32, 1, pair);
        sums = sums.chunks(2).map(&mut add).collect();
    }
    let nan = Scalar::new(scalar.m, 1, true).is_nan(sums[0]);
    let [careful, quick] = [true, false].map(|checks| {
        move |m: &mut Module| {
            let halves = Scalar::new(m, width, true).round_to_bf16(value, checks);
            let words = pair_upper(m, halves, width);
            m.effect(S::Store, &[pointer, words]);
        }
    });
    scalar.m.either(nan, careful, quick);
}

/// The same of halves in the high bits, whatever is in the low ones.
fn pair_upper(m: &mut Module, halves: Id, width: u32) -> Id {
    let [low, high] = halves_of(m, halves, width);
    let shift = m.constant(Type::U32, 16, width / 2);
    let mask = m.constant(Type::U32, 0xffff_0000, width / 2);
    let low = m.value(S::ShiftRightLogical, Type::U32, width / 2, &[low, shift]);
    let high = m.value(S::BitwiseAnd, Type::U32, width / 2, &[high, mask]);
    m.value(S::BitwiseOr, Type::U32, width / 2, &[low, high])
}

/// Words to twice as many f32, by the device.
fn unpack_halves(m: &mut Module, words: Id, width: u32) -> Id {
    let two = m.ty(Type::F32, 2);
    let unpack = GlslStd450Op::UnpackHalf2x16 as u32;
    let pairs: Vec<Id> = parts(m, Type::U32, words, width / 2)
        .into_iter()
        .map(|word| m.result(S::ExtInst, two, &[m.glsl, unpack, word]))
        .collect();
    join_as(m, Type::F32, &pairs, width)
}

/// f32 to half as many words, by the device.
fn pack_halves(m: &mut Module, values: Id, width: u32) -> Id {
    let pack = GlslStd450Op::PackHalf2x16 as u32;
    let two = m.ty(Type::F32, 2);
    let words: Vec<Id> = (0..width / 2)
        .map(|i| {
            let both = match width {
                2 => values,
                _ => m.result(S::VectorShuffle, two, &[values, values, 2 * i, 2 * i + 1]),
            };
            m.value(S::ExtInst, Type::U32, 1, &[m.glsl, pack, both])
        })
        .collect();
    join(m, &words)
}
