//! The program format: words to a checked program, all or nothing.

pub use super::options::Template;
use super::options::{FloatControls, Layout};

/// Word 0.
pub const MAGIC: u32 = 0x314b_5648;
const HEADER: usize = 8;
const MAX_LANES: u32 = 1024;
/// Rows of a workgroup whose invocations each have one.
pub const LONE_ROWS: u32 = 8;
/// Invocations of the column template that take neighbouring fours of columns; the others take other rows.
pub const COLUMN_LANES: u32 = 8;
const MAX_RANK: u32 = 8;
/// As many as an access mask has bits.
const MAX_OPERANDS: u32 = 32;
const MAX_SCALARS: u32 = 32;
const MAX_INSTRUCTIONS: u32 = 1024;
/// What common devices take; `createPipeline` checks the device's own limit.
const MAX_PUSH_WORDS: usize = 64;

/// What is wrong with a program, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("word {word}: {what}")]
pub struct ProgramError {
    pub word: usize,
    pub what: String,
}

type Result<T> = std::result::Result<T, ProgramError>;

fn wrong<T>(word: usize, what: impl Into<String>) -> Result<T> {
    let what = what.into();
    Err(ProgramError { word, what })
}

/// Element types of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    F32,
    F16,
    Bf16,
    I32,
    U32,
    /// A word of 0 or 1; read, any other is true as well.
    Bool,
    U8,
    I8,
}

impl Storage {
    fn of(word: u32) -> Option<Self> {
        use Storage::*;
        let all = [F32, F16, Bf16, I32, U32, Bool, U8, I8];
        all.get(word as usize).copied()
    }

    pub fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16)
    }

    /// How many elements a word has.
    pub fn per_word(self) -> u32 {
        match self {
            Self::U8 | Self::I8 => 4,
            Self::F16 | Self::Bf16 => 2,
            _ => 1,
        }
    }

    /// What its elements are computed as.
    pub fn value(self) -> Type {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => Type::F32,
            Self::I32 | Self::I8 => Type::I32,
            Self::U32 | Self::U8 => Type::U32,
            Self::Bool => Type::Bool,
        }
    }
}

/// Types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    F32,
    I32,
    U32,
    Bool,
}

impl Type {
    fn of(word: u32) -> Option<Self> {
        Storage::of(word)
            .filter(|s| s.per_word() == 1)
            .map(Storage::value)
    }
}

/// Where the element of an index lies. Offsets, periods and strides are counted in elements, and are push constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `offset + i`; the offset is a multiple of the width.
    Dense,
    /// `offset`.
    Scalar,
    /// `offset + i`, any offset.
    Shifted,
    /// `offset + i % period`.
    Period,
    /// `offset` + the sum of index times stride over the dimensions of the shape.
    Strided,
    /// As `Period`, where offset and period are multiples of the width.
    Tiled,
    /// Of a matrix: `offset` + row · stride, one value for a row.
    OfRow,
    /// Of a matrix: `offset` + column; offset and columns are multiples of 4.
    OfColumn,
    /// Of the flat template: as `Strided`, where the last stride is 1, and the offset, the other strides and the last size
    /// are multiples of the width.
    Lines,
}

impl Access {
    fn of(word: u32) -> Option<Self> {
        use Access::*;
        let all = [
            Dense, Scalar, Shifted, Period, Strided, Tiled, OfRow, OfColumn, Lines,
        ];
        all.get(word as usize).copied()
    }

    /// Whether the elements that an invocation takes at a time are one vector.
    pub fn is_vector(self) -> bool {
        matches!(
            self,
            Self::Dense | Self::Tiled | Self::OfColumn | Self::Lines
        )
    }

    /// Whether its coordinates are those of the shape.
    fn is_strided(self) -> bool {
        matches!(self, Self::Strided | Self::Lines)
    }

    /// Whether programs of a template may find elements so: the flat one knows no row and column, and the others take fours of
    /// columns, which need not be fours of the shape's last dimension.
    fn fits(self, template: Template) -> bool {
        match self {
            Self::OfRow | Self::OfColumn => template != Template::Flat,
            Self::Lines => template == Template::Flat,
            _ => true,
        }
    }

    /// Push constants of an operand: offset, then period or strides.
    pub fn push_words(self, rank: usize) -> usize {
        match self {
            Self::Dense | Self::Scalar | Self::Shifted | Self::OfColumn => 1,
            Self::Period | Self::Tiled | Self::OfRow => 2,
            Self::Strided | Self::Lines => 1 + rank,
        }
    }
}

macro_rules! ops {
    ($($name:ident)*) => {
        /// Operations, numbered in this order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Op { $($name),* }
        impl Op {
            pub const ALL: &[Op] = &[$(Op::$name),*];
        }
    };
}

ops! {
    Const Index ToF32 ToI32 ToU32 ToBool Bits
    Add Sub Mul Div Rem Min Max Neg Abs Sign
    Sqrt Rsqrt Exp Log Exp2 Log2 Sin Cos Tan Tanh Erf Pow Floor Ceil Trunc Round
    Eq Ne Lt Le Gt Ge Select
    And Or Xor Not Shl Shr IsNan
    ReduceSum ReduceMax ReduceMin
}

impl Op {
    /// Whether the result is one value of many elements.
    pub fn reduces(self) -> bool {
        matches!(self, Self::ReduceSum | Self::ReduceMax | Self::ReduceMin)
    }
}

/// The number of a value: inputs first, then scalars, then instructions.
pub type Value = u32;

#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    pub op: Op,
    /// Values; of `Const` the type's number and the bits, of `Bits` a value and the type's number.
    pub args: [u32; 3],
    pub ty: Type,
}

#[derive(Clone, Copy, Debug)]
pub struct Input {
    pub storage: Storage,
    pub access: Access,
}

#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub storage: Storage,
    pub access: Access,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub struct Program {
    pub template: Template,
    pub controls: FloatControls,
    pub layout: Layout,
    /// Invocations of a workgroup.
    pub lanes: u32,
    /// Dimensions of the shape of strided operands.
    pub rank: usize,
    pub inputs: Vec<Input>,
    pub scalars: Vec<Type>,
    pub instructions: Vec<Instruction>,
    pub outputs: Vec<Output>,
    /// Whether an output depends on the value.
    pub live: Vec<bool>,
    /// Whether the value is the same for all elements of a row (of the column template: of a column).
    pub uniform: Vec<bool>,
    /// How many reductions come one after the other before the value is known.
    pub depth: Vec<u32>,
}

impl Program {
    /// Reads a program.
    ///
    /// # Errors
    /// [`ProgramError`] for the first word that is wrong.
    pub fn decode(words: &[u32]) -> Result<Self> {
        if words.len() < HEADER {
            return wrong(
                words.len(),
                format!("a program begins with {HEADER} words, this one ends here"),
            );
        }
        if words[0] != MAGIC {
            return wrong(0, format!("{:#010x} is not {MAGIC:#010x}", words[0]));
        }
        let template = match words[1] & 0xff {
            0 => Template::Flat,
            1 => Template::Row,
            2 => Template::Column,
            other => return wrong(1, format!("no template {other}")),
        };
        let bits = words[1] >> 8 & 0xff;
        let Some(controls) = FloatControls::of(bits) else {
            return wrong(1, format!("no float controls {bits:#x}"));
        };
        let bits = words[1] >> 16;
        let Some(layout) = Layout::of(bits, template) else {
            return wrong(
                1,
                format!("no layout {bits:#x} of the {template:?} template"),
            );
        };
        let bounded = |word: usize, what: &str, low: u32, high: u32| {
            let value = words[word];
            if (low..=high).contains(&value) {
                return Ok(value);
            }
            wrong(word, format!("{value} {what}, {low} to {high} are allowed"))
        };
        let lanes = bounded(2, "invocations in a workgroup", 1, MAX_LANES)?;
        let halves = match template {
            Template::Flat => true,
            Template::Row => lanes.is_power_of_two(),
            Template::Column => lanes.is_power_of_two() && lanes >= COLUMN_LANES,
        };
        if !halves {
            let what = format!(
                "{lanes} invocations in a workgroup, not a power of two that the {template:?} template takes"
            );
            return wrong(2, what);
        }
        let rank = bounded(3, "dimensions", 0, MAX_RANK)? as usize;
        let inputs = bounded(4, "inputs", 0, MAX_OPERANDS - 1)?;
        let scalars = bounded(5, "scalars", 0, MAX_SCALARS)?;
        let instructions = bounded(6, "instructions", 0, MAX_INSTRUCTIONS)?;
        let outputs = bounded(7, "outputs", 1, MAX_OPERANDS - inputs)?;
        let length = HEADER as u32 + 2 * inputs + scalars + 4 * instructions + 3 * outputs;
        if words.len() != length as usize {
            let what = format!("the header announces {length} words, got {}", words.len());
            return wrong(words.len().min(length as usize), what);
        }

        let mut reader = Reader {
            words,
            at: HEADER,
            template,
            width: layout.width,
        };
        let mut types = Vec::new();
        let mut ranks = Ranks::default();
        let inputs = (0..inputs)
            .map(|_| {
                let storage = reader.storage()?;
                let access = reader.access(rank)?;
                types.push(storage.value());
                ranks.push(access == Access::Scalar, 0);
                Ok(Input { storage, access })
            })
            .collect::<Result<Vec<_>>>()?;
        let scalars = (0..scalars)
            .map(|_| {
                let ty = reader.value_type()?;
                types.push(ty);
                ranks.push(true, 0);
                Ok(ty)
            })
            .collect::<Result<Vec<_>>>()?;
        let instructions = (0..instructions)
            .map(|_| {
                let instruction = reader.instruction(&types)?;
                if let Err(what) = ranks.note(template, &instruction) {
                    return wrong(reader.at - 4, what);
                }
                types.push(instruction.ty);
                Ok(instruction)
            })
            .collect::<Result<Vec<_>>>()?;
        let outputs = (0..outputs)
            .map(|_| {
                let output = reader.output(rank, &types)?;
                if let Err(what) = ranks.check(template, &output) {
                    return wrong(reader.at - 1, what);
                }
                Ok(output)
            })
            .collect::<Result<Vec<_>>>()?;

        let mut program = Self {
            template,
            controls,
            layout,
            lanes,
            rank,
            inputs,
            scalars,
            instructions,
            outputs,
            live: Vec::new(),
            uniform: ranks.uniform,
            depth: ranks.depth,
        };
        let push = program.push_words();
        if push > MAX_PUSH_WORDS {
            let what = format!("{push} push constants, at most {MAX_PUSH_WORDS} are allowed");
            return wrong(3, what);
        }
        program.live = program.liveness(types.len());
        Ok(program)
    }

    /// 32-bit push constants: sizes, shape, operands, scalars.
    pub fn push_words(&self) -> usize {
        let inputs = self.inputs.iter().map(|i| i.access);
        let outputs = self.outputs.iter().map(|o| o.access);
        let operands: usize = inputs.chain(outputs).map(|a| a.push_words(self.rank)).sum();
        self.template.sizes() + self.rank + operands + self.scalars.len()
    }

    /// Of the flat template: whether the count is known to be a multiple of the width.
    pub fn is_whole(&self) -> bool {
        let inputs = self.inputs.iter().map(|i| i.access);
        let outputs = self.outputs.iter().map(|o| o.access);
        self.layout.width < 4 || inputs.chain(outputs).any(|a| a == Access::Lines)
    }

    /// Of the templates of matrices: whether the number of columns is known to be a multiple of 4, as vectors of operands ask.
    pub fn in_fours(&self) -> bool {
        let inputs = self.inputs.iter().map(|i| i.access);
        let outputs = self.outputs.iter().map(|o| o.access);
        inputs.chain(outputs).any(Access::is_vector)
    }

    /// The value of the first instruction.
    pub fn first_instruction(&self) -> usize {
        self.inputs.len() + self.scalars.len()
    }

    fn liveness(&self, values: usize) -> Vec<bool> {
        let outputs: Vec<Value> = self.outputs.iter().map(|o| o.value).collect();
        self.needs(&outputs, &vec![None; values])
    }

    /// The values that some are computed from, themselves among them, where others are known already.
    pub fn needs(&self, wanted: &[Value], known: &[Option<u32>]) -> Vec<bool> {
        let mut needed = vec![false; known.len()];
        for &value in wanted {
            needed[value as usize] = known[value as usize].is_none();
        }
        let first = self.first_instruction();
        for (i, instruction) in self.instructions.iter().enumerate().rev() {
            if needed[first + i] {
                for &arg in &instruction.args[..value_args(instruction.op)] {
                    needed[arg as usize] |= known[arg as usize].is_none();
                }
            }
        }
        needed
    }
}

/// What is known of values besides their types, as they are read.
#[derive(Default)]
struct Ranks {
    uniform: Vec<bool>,
    depth: Vec<u32>,
}

impl Ranks {
    fn push(&mut self, uniform: bool, depth: u32) {
        self.uniform.push(uniform);
        self.depth.push(depth);
    }

    /// An instruction's value.
    fn note(
        &mut self,
        template: Template,
        instruction: &Instruction,
    ) -> std::result::Result<(), String> {
        let op = instruction.op;
        let args = &instruction.args[..value_args(op)];
        let depth = args.iter().map(|&a| self.depth[a as usize]).max();
        let mut depth = depth.unwrap_or(0);
        let mut uniform = op != Op::Index && args.iter().all(|&a| self.uniform[a as usize]);
        if op.reduces() {
            if template == Template::Flat {
                return Err(format!("{op:?} in a program of the flat template"));
            }
            if template == Template::Column && depth > 0 {
                return Err(format!("{op:?} of what depends on another reduction"));
            }
            (uniform, depth) = (true, depth + 1);
        }
        self.push(uniform, depth);
        Ok(())
    }

    /// Whether a template writes such an output: what is one for a row or column goes there, one after the other.
    fn check(&self, template: Template, output: &Output) -> std::result::Result<(), String> {
        let value = output.value as usize;
        if template == Template::Flat {
            return Ok(());
        }
        if self.uniform[value] {
            if output.access == Access::Shifted {
                return Ok(());
            }
            let what = if template == Template::Row {
                "row"
            } else {
                "column"
            };
            return Err(format!(
                "value {value} is one for each {what}: its output is Shifted, not {:?}",
                output.access
            ));
        }
        if template == Template::Column && self.depth[value] > 0 {
            return Err(format!(
                "value {value} is an element that depends on a reduction"
            ));
        }
        Ok(())
    }
}

/// How many of an operation's arguments are values.
pub fn value_args(op: Op) -> usize {
    use Op::*;
    match op {
        Const | Index => 0,
        Add | Sub | Mul | Div | Rem | Min | Max | Pow | Eq | Ne | Lt | Le | Gt | Ge | And | Or
        | Xor | Shl | Shr => 2,
        Select => 3,
        _ => 1,
    }
}

struct Reader<'a> {
    words: &'a [u32],
    at: usize,
    template: Template,
    width: u32,
}

impl Reader<'_> {
    fn word(&mut self) -> u32 {
        // The length was checked against the header.
        let word = self.words[self.at];
        self.at += 1;
        word
    }

    fn storage(&mut self) -> Result<Storage> {
        let word = self.word();
        Storage::of(word).map_or_else(|| wrong(self.at - 1, format!("no element type {word}")), Ok)
    }

    fn value_type(&mut self) -> Result<Type> {
        let word = self.word();
        Type::of(word).map_or_else(
            || wrong(self.at - 1, format!("no type {word} of values")),
            Ok,
        )
    }

    fn access(&mut self, rank: usize) -> Result<Access> {
        let word = self.word();
        match Access::of(word) {
            Some(access) if access.is_strided() && rank == 0 => wrong(
                self.at - 1,
                "a strided operand of a program without dimensions",
            ),
            Some(access) if access.fits(self.template) => Ok(access),
            Some(access) => {
                let template = format!("{:?}", self.template).to_lowercase();
                let what = format!("access {access:?} in a program of the {template} template");
                wrong(self.at - 1, what)
            }
            None => wrong(self.at - 1, format!("no access {word}")),
        }
    }

    fn output(&mut self, rank: usize, types: &[Type]) -> Result<Output> {
        let storage = self.storage()?;
        let access = self.access(rank)?;
        // Two invocations must not write one word.
        let whole = match access {
            Access::Dense | Access::Lines => self.width >= storage.per_word(),
            Access::Shifted | Access::Strided => storage.per_word() == 1,
            Access::Scalar | Access::Period | Access::Tiled | Access::OfRow | Access::OfColumn => {
                false
            }
        };
        if !whole {
            let what = format!("an output of type {storage:?} cannot be {access:?}");
            return wrong(self.at - 1, what);
        }
        let value = self.word();
        match types.get(value as usize) {
            None => wrong(self.at - 1, format!("no value {value}")),
            Some(&ty) if ty != storage.value() => {
                let what = format!("value {value} is {ty:?}, the output {storage:?}");
                wrong(self.at - 1, what)
            }
            Some(_) => Ok(Output {
                storage,
                access,
                value,
            }),
        }
    }

    fn instruction(&mut self, types: &[Type]) -> Result<Instruction> {
        use Op::*;
        use Type::*;
        let start = self.at;
        let number = self.word();
        let args = [self.word(), self.word(), self.word()];
        let Some(&op) = Op::ALL.get(number as usize) else {
            return wrong(start, format!("no operation {number}"));
        };
        let values = value_args(op);
        let mut of = [F32; 3];
        for i in 0..values {
            of[i] = match types.get(args[i] as usize) {
                Some(&ty) => ty,
                None => {
                    let what = format!("{op:?} of value {}, of which there is none yet", args[i]);
                    return wrong(start + 1 + i, what);
                }
            };
        }
        let used = values.max(match op {
            Const | Bits => 2,
            _ => 0,
        });
        if let Some(i) = (used..3).find(|&i| args[i] != 0) {
            return wrong(
                start + 1 + i,
                format!("{op:?} takes {used} arguments; the others are 0"),
            );
        }
        let [a, b, c] = of;
        let named = |word: u32, at: usize| {
            Type::of(word).map_or_else(|| wrong(at, format!("no type {word} of values")), Ok)
        };
        let fits = match op {
            Const | Index | ToF32 | ToI32 | ToU32 | ToBool => true,
            Bits => a != Bool,
            Add | Sub | Mul | Div | Min | Max | Lt | Le | Gt | Ge => a == b && a != Bool,
            Rem | Shl | Shr => a == b && matches!(a, I32 | U32),
            Neg | Abs | Sign => a != Bool,
            Sqrt | Rsqrt | Exp | Log | Exp2 | Log2 | Sin | Cos | Tan | Tanh | Erf | Floor
            | Ceil | Trunc | Round | IsNan | ReduceSum | ReduceMax | ReduceMin => a == F32,
            Pow => a == F32 && b == F32,
            Eq | Ne => a == b,
            Select => a == Bool && b == c,
            And | Or | Xor => a == b && a != F32,
            Not => a != F32,
        };
        if !fits {
            return wrong(start, format!("{op:?} does not take {:?}", &of[..values]));
        }
        let ty = match op {
            Const => {
                let ty = named(args[0], start + 1)?;
                if ty == Bool && args[1] > 1 {
                    return wrong(start + 2, format!("{} is neither 0 nor 1", args[1]));
                }
                ty
            }
            Bits => {
                let ty = named(args[1], start + 2)?;
                if ty == Bool {
                    return wrong(start + 2, "Bits gives no Bool");
                }
                ty
            }
            Index | ToU32 => U32,
            ToF32 => F32,
            ToI32 => I32,
            ToBool | Eq | Ne | Lt | Le | Gt | Ge | IsNan => Bool,
            Select => b,
            _ => a,
        };
        Ok(Instruction { op, args, ty })
    }
}
