//! Reads and checks SPIR-V compute shaders before a driver sees them. Without Vulkan, Node-API or a device.
//!
//! [`reflect`] says which storage buffers a shader reads and writes, whether it uses device addresses, and the
//! interface that its pipeline layout must have.
//!
//! The order of recorded dispatches depends on this answer. So it is derived only from the instructions (`NonWritable`,
//! `NonReadable` and the caller's write mask are not trusted), and it errs on one side: it may report an access that
//! never happens, but never omits one that may happen.
//!
//! ```text
//! words → `module` (instructions, declarations) → `layout` (constants, types, sizes)
//!       → `flow` (which pointers reach which access) → [`Reflection`].
//! ```
//!
//! [`validate`] also checks the whole module, for safe mode.
#![forbid(unsafe_code)]

mod flow;
mod layout;
mod module;
#[cfg(test)]
mod tests;
pub mod validate;

use layout::Layouts;
use module::Module;
use rspirv::spirv::{Capability, ExecutionMode, StorageClass};

/// Number of storage buffer bindings that one pipeline may have: one bit each in the access masks.
pub const MAX_BINDINGS: u32 = 32;

/// What a compute shader's entry point `main` reads, writes and needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reflection {
    /// Highest storage buffer binding that `main` uses (set 0), plus one; 0 when it uses none.
    pub bindings: u32,
    /// Bit i: `main` names binding i, accessed or not.
    pub used: u32,
    /// Bit i: binding i may be read.
    pub reads: u32,
    /// Bit i: binding i may be written.
    pub writes: u32,
    /// Memory may be read through a device address (storage class `PhysicalStorageBuffer`).
    pub address_reads: bool,
    /// Memory may be written through a device address.
    pub address_writes: bool,
    /// End, in bytes, of the last push constant that `main` can read; 0 when it reads none.
    pub push_bytes: u32,
    /// Size in bytes of the whole push constant block that `main` uses, read or not; 0 if it uses none. Vulkan requires
    /// it to be inside the layout's push constant range (VUID-VkComputePipelineCreateInfo-layout-10070).
    pub push_block_bytes: u32,
    /// Invocations per workgroup in x, y and z under the given specialization.
    pub workgroup_size: [u32; 3],
    /// `SpecId` of the specialization constant that sets each dimension, if one does. Also `None` for a dimension
    /// computed from specialization constants: ask [`reflect_with`] for its value.
    pub workgroup_size_ids: [Option<u32>; 3],
    /// Workgroup memory of the variables that `main` uses, in bytes, under the given specialization. `None` if an array
    /// length cannot be evaluated here. Variables that alias count once.
    pub shared_bytes: Option<u64>,
    /// Declared capabilities (`OpCapability`), in order.
    pub capabilities: Vec<u32>,
    /// Declared SPIR-V extensions (`OpExtension`), in order.
    pub extensions: Vec<String>,
    /// The module declares a cooperative matrix type or capability.
    pub uses_cooperative_matrix: bool,
}

/// Why a module cannot be used as a compute shader. Offsets count 32-bit words from the start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReflectError {
    /// The module does not start as a SPIR-V module.
    #[error("not SPIR-V: word 0 is {found:#010x}, not the magic number 0x07230203")]
    Magic { found: u32 },
    /// The words have the other byte order.
    #[error("SPIR-V in the other byte order: word 0 is 0x03022307; swap the bytes of every word")]
    ByteSwapped,
    /// Fewer words than a header has.
    #[error("not SPIR-V: {words} words, but the header alone has 5")]
    Header { words: usize },
    /// An instruction reaches past the end of the module.
    #[error("word {offset}: {name} has {length} words, but only {left} are left in the module")]
    Truncated {
        offset: usize,
        name: String,
        length: usize,
        left: usize,
    },
    /// An instruction is shorter than its required operands.
    #[error("word {offset}: {name} has {length} words, too few for its operands")]
    TooShort {
        offset: usize,
        name: String,
        length: usize,
    },
    /// An id is 0 or not below the header's bound.
    #[error("word {offset}: {name} uses id {id}, outside 1..{bound}, the module's bound")]
    IdOutOfBound {
        offset: usize,
        name: String,
        id: u32,
        bound: u32,
    },
    /// More ids than the module could define; a driver reserves memory for each.
    #[error("word 3: a bound of {bound} ids is too much for a module of {words} words")]
    Bound { bound: u32, words: usize },
    /// Any other violation of the SPIR-V rules that reflection relies on.
    #[error("word {offset}: {what}")]
    Malformed { offset: usize, what: String },
    /// No compute entry point named `main`.
    #[error("no GLCompute entry point named \"main\" (the module has: {found})")]
    NoEntryPoint { found: String },
    /// The entry point does not say its workgroup size, or it cannot be evaluated.
    #[error("the entry point's workgroup size {0}")]
    WorkgroupSize(String),
    /// A binding number that an access mask has no bit for.
    #[error(
        "word {offset}: storage buffer %{id} has binding {binding}; bindings 0 to 31 are supported"
    )]
    Binding {
        offset: usize,
        id: u32,
        binding: u32,
    },
    /// A storage buffer outside descriptor set 0.
    #[error(
        "word {offset}: storage buffer %{id} is in descriptor set {set}; only set 0 is supported"
    )]
    DescriptorSet { offset: usize, id: u32, set: u32 },
    /// A storage buffer that lacks its `Binding` or `DescriptorSet` decoration.
    #[error("word {offset}: storage buffer %{id} has no {decoration} decoration")]
    Undecorated {
        offset: usize,
        id: u32,
        decoration: &'static str,
    },
    /// A resource that is not a plain storage buffer.
    #[error("word {offset}: %{id} is {kind}; only storage buffers can be bound")]
    Resource {
        offset: usize,
        id: u32,
        kind: String,
    },
    /// The push constant block has a size that cannot be computed.
    #[error("word {offset}: the size of push constant block %{id} cannot be computed")]
    PushConstants { offset: usize, id: u32 },
}

/// Reflects the entry point `main` of a compute shader, with its default specialization.
///
/// # Errors
/// [`ReflectError`] for a malformed module, and for one that is not a compute shader over storage
/// buffers (set 0, bindings 0 to 31), push constants and device addresses.
pub fn reflect(words: &[u32]) -> Result<Reflection, ReflectError> {
    reflect_with(words, &[])
}

/// [`reflect`] under a specialization: word `i` is the value of the constant with `SpecId` `i`. It determines the
/// workgroup size and the workgroup memory. Reads and writes are found for every specialization.
///
/// # Errors
/// As [`reflect`].
pub fn reflect_with(words: &[u32], specialization: &[u32]) -> Result<Reflection, ReflectError> {
    let module = Module::parse(words)?;
    let layouts = Layouts::compute(&module, specialization)?;
    let (workgroup_size, workgroup_size_ids) = workgroup_size(&module, &layouts)?;
    let access = flow::analyse(&module, &layouts)?;
    let bindings = 32 - access.used.leading_zeros();
    Ok(Reflection {
        bindings,
        used: access.used,
        reads: access.reads,
        writes: access.writes,
        address_reads: access.address_reads,
        address_writes: access.address_writes,
        push_bytes: access.push_bytes,
        push_block_bytes: access.push_block_bytes,
        workgroup_size,
        workgroup_size_ids,
        shared_bytes: layouts.shared_bytes(&module, &access.variables),
        uses_cooperative_matrix: module.cooperative_matrix
            || module.capabilities.iter().any(|&c| {
                c == Capability::CooperativeMatrixKHR as u32
                    || c == Capability::CooperativeMatrixNV as u32
            }),
        capabilities: module.capabilities,
        extensions: module.extensions,
    })
}

/// The workgroup size of `main` and the specialization constants behind it. A constant decorated
/// `WorkgroupSize` overrides the execution modes (Vulkan specification, "WorkgroupSize").
fn workgroup_size(
    module: &Module,
    layouts: &Layouts,
) -> Result<([u32; 3], [Option<u32>; 3]), ReflectError> {
    let mut ids = [None; 3];
    let mut size = None;
    for mode in module
        .execution_modes
        .iter()
        .filter(|m| m.function == module.main)
    {
        if mode.mode == ExecutionMode::LocalSize as u32 && ids == [None; 3] {
            size = Some(mode.operands);
        } else if mode.mode == ExecutionMode::LocalSizeId as u32 {
            ids = mode.operands.map(Some);
        }
    }
    let builtin = module
        .decorations
        .iter()
        .filter(|(_, d)| d.workgroup_size)
        .map(|(&id, _)| id)
        .min();
    if let Some(id) = builtin {
        let parts = layouts
            .composite(id)
            .filter(|parts| parts.len() == 3)
            .ok_or_else(|| {
                ReflectError::WorkgroupSize(format!(
                    "is decorated on %{id}, which is not a constant of 3 parts"
                ))
            })?;
        ids = [Some(parts[0]), Some(parts[1]), Some(parts[2])];
    }
    if ids == [None; 3] {
        let size = size.ok_or_else(|| {
            ReflectError::WorkgroupSize(
                "is not declared (LocalSize, LocalSizeId or WorkgroupSize)".into(),
            )
        })?;
        return Ok((size, ids));
    }
    let mut size = [0; 3];
    let mut spec_ids = [None; 3];
    for (axis, id) in ids.into_iter().flatten().enumerate() {
        let value = layouts.scalar(id).and_then(|v| u32::try_from(v).ok());
        size[axis] = value.ok_or_else(|| {
            ReflectError::WorkgroupSize(format!("takes %{id}, whose value cannot be computed"))
        })?;
        spec_ids[axis] = module.decorations.get(&id).and_then(|d| d.spec_id);
    }
    Ok((size, spec_ids))
}

/// The storage class of a word, if this analysis knows it.
fn storage_class(word: u32) -> Option<StorageClass> {
    StorageClass::from_u32(word)
}
