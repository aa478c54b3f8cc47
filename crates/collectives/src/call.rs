//! A collective call. Ranks exchange their calls before they begin one, since all of them must make the same call.
#![deny(unsafe_code)]

use std::fmt;

/// Bytes of a call as the ranks exchange it.
pub(crate) const BYTES: usize = 32;

/// A collective of all ranks, in place on one range of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Every rank gets the sum of all ranks' elements.
    AllReduce,
    /// Each rank gets the sum of its own shard alone.
    ReduceScatter,
    /// Every rank gets every rank's shard, in rank order; its own is in its place already.
    AllGather,
    /// Every rank gets the elements of the root.
    Broadcast,
    /// Sends the first half of the elements, a shard to each rank; the second half receives a shard from each, in rank
    /// order.
    AllToAll,
    /// All ranks leave the group.
    Leave,
}

impl Kind {
    pub const ALL: [Self; 6] = [
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Broadcast,
        Self::AllToAll,
        Self::Leave,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "allReduce",
            Self::ReduceScatter => "reduceScatter",
            Self::AllGather => "allGather",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "allToAll",
            Self::Leave => "destroy",
        }
    }

    /// Whether it sums elements.
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter)
    }

    /// The number of equal parts that its elements are cut into in a group of `size` ranks.
    pub const fn parts(self, size: u32) -> u64 {
        match self {
            Self::ReduceScatter | Self::AllGather => size as u64,
            Self::AllToAll => 2 * size as u64,
            Self::AllReduce | Self::Broadcast | Self::Leave => 1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    F32,
    Bf16,
    U8,
}

impl Element {
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::U8];

    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::U8 => "u8",
        }
    }

    pub const fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }
}

/// One call of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub kind: Kind,
    pub element: Element,
    /// Elements of the whole range: the shards of all ranks together.
    pub elements: u64,
    pub root: u32,
    /// Its place among the calls of the group, from 1 on.
    pub number: u64,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind.name();
        if self.kind == Kind::Leave {
            return f.write_str(name);
        }
        write!(f, "{name} of {} {}", self.elements, self.element.name())?;
        match self.kind {
            Kind::Broadcast => write!(f, " from rank {}", self.root),
            _ => Ok(()),
        }
    }
}

impl Call {
    /// All ranks leave.
    pub fn leave() -> Self {
        Self {
            kind: Kind::Leave,
            element: Element::F32,
            elements: 0,
            root: 0,
            number: 0,
        }
    }

    pub fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let fields = [
            self.kind as u64,
            self.element as u64 | u64::from(self.root) << 32,
            self.elements,
            self.number,
        ];
        for (word, field) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(fields) {
            *word = field.to_le_bytes();
        }
        bytes
    }

    /// The call, or none if no rank of this version sends such bytes.
    pub fn from_bytes(bytes: &[u8; BYTES]) -> Option<Self> {
        let mut words = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .copied()
            .map(u64::from_le_bytes);
        let mut next = || words.next();
        let (kind, element, elements, number) = (next()?, next()?, next()?, next()?);
        Some(Self {
            kind: *Kind::ALL.get(usize::try_from(kind).ok()?)?,
            element: *Element::ALL.get((element & 0xffff_ffff) as usize)?,
            elements,
            root: (element >> 32) as u32,
            number,
        })
    }

    /// Bytes of the whole range.
    pub fn bytes(&self) -> u64 {
        self.elements * self.element.bytes()
    }

    /// Bytes of each of its equal parts ([`Kind::parts`]) in a group of `size` ranks.
    pub fn part_bytes(&self, size: u32) -> u64 {
        self.bytes() / self.kind.parts(size)
    }

    /// Why a group of `size` ranks cannot carry it out, if it cannot: the argument, the problem, its value.
    pub fn problem(&self, size: u32) -> Option<[String; 3]> {
        let named =
            |name: &str, problem: String, value: String| Some([name.to_owned(), problem, value]);
        if self.kind.reduces() && self.element != Element::F32 {
            let problem = "must be f32: sums are computed in f32 alone".to_owned();
            return named("type", problem, self.element.name().to_owned());
        }
        if self.root >= size {
            let problem = format!("must be a rank of the group's {size}");
            return named("root", problem, self.root.to_string());
        }
        let parts = self.kind.parts(size);
        let whole = self.elements.is_multiple_of(parts)
            && (self.elements / parts * self.element.bytes()).is_multiple_of(4);
        if self.elements > 0 && whole {
            return None;
        }
        let problem = match self.kind {
            Kind::AllToAll => {
                format!("must be more than 0, and two halves of {size} ranks of 4 bytes")
            }
            _ if parts > 1 => {
                format!("must be more than 0, and a multiple of {size} ranks of 4 bytes")
            }
            _ => "must be more than 0, and a multiple of 4 bytes".to_owned(),
        };
        named("count", problem, self.elements.to_string())
    }

    /// Bytes of host memory that the call needs besides the buffer: the whole range, or none where the engine works on the
    /// buffer itself (`in_place`). A reduce-scatter in place needs memory for its shard, which MPI writes to the start.
    pub fn staged_bytes(&self, in_place: bool, size: u32) -> u64 {
        match (in_place, self.kind) {
            (false, _) => self.bytes(),
            (true, Kind::ReduceScatter) => self.bytes() / u64::from(size),
            (true, _) => 0,
        }
    }

    /// The copies that rank `rank` of `size` makes before and after the collective.
    pub fn staged(&self, rank: u32, size: u32) -> [Copy; 2] {
        let whole = Copy {
            range: 0,
            staged: 0,
            bytes: self.bytes(),
        };
        let shard = self.bytes() / u64::from(size);
        let own = Copy {
            range: shard * u64::from(rank),
            staged: shard * u64::from(rank),
            bytes: shard,
        };
        let none = Copy { bytes: 0, ..whole };
        match self.kind {
            Kind::AllReduce => [whole, whole],
            // The sums of the own shard come at the start of the memory.
            Kind::ReduceScatter => [whole, Copy { staged: 0, ..own }],
            Kind::AllGather => [own, whole],
            Kind::Broadcast if self.root == rank => [whole, none],
            Kind::Broadcast => [none, whole],
            Kind::AllToAll => {
                let half = self.bytes() / 2;
                let [sent, received] = [0, half].map(|at| Copy {
                    range: at,
                    staged: at,
                    bytes: half,
                });
                [sent, received]
            }
            Kind::Leave => [none, none],
        }
    }

    /// The same for an engine that writes the sums of a rank's shard to that shard's place.
    pub fn staged_in_place(&self, rank: u32, size: u32) -> [Copy; 2] {
        let [out, back] = self.staged(rank, size);
        let staged = back.range;
        [out, Copy { staged, ..back }]
    }
}

/// A copy between the range of a buffer and the memory that the collective runs on; offsets are in bytes from the start of
/// each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    pub range: u64,
    pub staged: u64,
    pub bytes: u64,
}

/// Compares the calls of all ranks, listed by rank. If they differ: the first rank that differs from rank 0, and what each
/// rank called.
pub fn mismatch(calls: &[Option<Call>]) -> Option<(u32, String)> {
    let first = calls.first()?;
    let odd = calls
        .iter()
        .position(|call| call != first || call.is_none())?;
    let of = |call: &Option<Call>| match call {
        Some(call) => format!("{call} as call {}", call.number),
        None => "what this version does not know".to_owned(),
    };
    let mut by_call: Vec<(String, Vec<String>)> = Vec::new();
    for (rank, call) in calls.iter().enumerate() {
        let text = of(call);
        match by_call.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ranks)) => ranks.push(rank.to_string()),
            None => by_call.push((text, vec![rank.to_string()])),
        }
    }
    let each = by_call.iter().map(|(text, ranks)| {
        let (what, verb) = match ranks.len() {
            1 => ("rank", "calls"),
            _ => ("ranks", "call"),
        };
        format!("{what} {} {verb} {text}", ranks.join(", "))
    });
    let each: Vec<_> = each.collect();
    Some((
        odd as u32,
        format!("the ranks disagree: {}", each.join("; ")),
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(kind: Kind, elements: u64) -> Call {
        Call {
            kind,
            element: Element::F32,
            elements,
            root: 1,
            number: 7,
        }
    }

    proptest! {
        #[test]
        fn a_call_comes_back_as_it_was_sent(
            kind in 0usize..6, element in 0usize..3, elements: u64, root: u32, number: u64,
        ) {
            let call = Call { kind: Kind::ALL[kind], element: Element::ALL[element], elements, root, number };
            prop_assert_eq!(Call::from_bytes(&call.to_bytes()), Some(call));
        }

        /// Never a panic, and nothing is taken for a call that would be sent otherwise.
        #[test]
        fn what_is_no_call_is_refused(bytes: [u8; BYTES]) {
            if let Some(call) = Call::from_bytes(&bytes) {
                prop_assert_eq!(Call::from_bytes(&call.to_bytes()), Some(call));
            }
        }
    }

    #[test]
    fn equal_calls_agree_and_others_are_named() {
        let same = Some(call(Kind::AllReduce, 64));
        assert_eq!(mismatch(&[same; 4]), None);
        let shorter = Some(call(Kind::AllReduce, 32));
        let (rank, text) = mismatch(&[same, same, shorter, same]).expect("a mismatch");
        assert_eq!(rank, 2);
        assert_eq!(
            text,
            "the ranks disagree: ranks 0, 1, 3 call allReduce of 64 f32 as call 7; rank 2 calls allReduce of 32 f32 \
             as call 7"
        );
        let (rank, text) = mismatch(&[Some(call(Kind::Broadcast, 1)), Some(call(Kind::Leave, 0))])
            .expect("a mismatch");
        assert_eq!(rank, 1);
        assert!(text.contains(
            "rank 0 calls broadcast of 1 f32 from rank 1 as call 7; rank 1 calls destroy"
        ));
        assert!(mismatch(&[None, None]).is_some(), "unknown to both");
    }

    #[test]
    fn what_a_group_cannot_do_is_named() {
        let argument = |call: Call, size| call.problem(size).map(|[argument, ..]| argument);
        assert_eq!(call(Kind::AllReduce, 7).problem(2), None);
        assert_eq!(call(Kind::ReduceScatter, 8).problem(2), None);
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(argument(call(Kind::ReduceScatter, 7), 2), named("count"));
        assert_eq!(argument(call(Kind::AllReduce, 0), 2), named("count"));
        assert_eq!(argument(call(Kind::Broadcast, 4), 1), named("root"));
        let of = |element, kind, elements| Call {
            element,
            ..call(kind, elements)
        };
        assert_eq!(
            argument(of(Element::Bf16, Kind::AllReduce, 8), 2),
            named("type")
        );
        // A shard of two bytes.
        assert_eq!(
            argument(of(Element::Bf16, Kind::AllGather, 2), 2),
            named("count")
        );
        assert_eq!(argument(of(Element::Bf16, Kind::AllGather, 4), 2), None);
    }

    #[test]
    fn memory_besides_the_buffer_is_for_copies_and_for_sums_of_a_shard() {
        for kind in Kind::ALL {
            assert_eq!(call(kind, 12).staged_bytes(false, 3), 48);
        }
        assert_eq!(call(Kind::ReduceScatter, 12).staged_bytes(true, 3), 16);
        for kind in [Kind::AllReduce, Kind::AllGather, Kind::Broadcast] {
            assert_eq!(call(kind, 12).staged_bytes(true, 3), 0);
        }
    }

    #[test]
    fn copies_cover_what_a_rank_sends_and_gets() {
        let whole = Copy {
            range: 0,
            staged: 0,
            bytes: 48,
        };
        let none = Copy {
            range: 0,
            staged: 0,
            bytes: 0,
        };
        assert_eq!(call(Kind::AllReduce, 12).staged(1, 3), [whole, whole]);
        let own = Copy {
            range: 16,
            staged: 16,
            bytes: 16,
        };
        assert_eq!(call(Kind::AllGather, 12).staged(1, 3), [own, whole]);
        let sum = Copy { staged: 0, ..own };
        assert_eq!(call(Kind::ReduceScatter, 12).staged(1, 3), [whole, sum]);
        let in_place = call(Kind::ReduceScatter, 12).staged_in_place(1, 3);
        assert_eq!(in_place, [whole, own]);
        let gather = call(Kind::AllGather, 12);
        assert_eq!(gather.staged_in_place(1, 3), gather.staged(1, 3));
        let exchange = call(Kind::AllToAll, 12);
        let [sent, received] = [0, 24].map(|at| Copy {
            range: at,
            staged: at,
            bytes: 24,
        });
        assert_eq!(exchange.staged(1, 3), [sent, received]);
        assert_eq!(exchange.staged_in_place(1, 3), [sent, received]);
        assert_eq!(exchange.part_bytes(3), 8);
        assert_eq!(call(Kind::Broadcast, 12).staged(1, 3), [whole, none]);
        assert_eq!(call(Kind::Broadcast, 12).staged(0, 3), [none, whole]);
    }
}
