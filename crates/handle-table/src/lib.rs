//! Generational handle tables: a JS integer names one object for the life of the process.
//!
//! A handle has 31 bits: 20 bits of slot index, 11 bits of generation. A slot's generation grows with every reuse, so a
//! stale handle never finds the slot's new object. Each kind of object has its own generations ([`Kind`]), so a handle
//! of one kind is never valid for another. No generation is 0, so a number below 2^20, such as most programs' timeline
//! values, is never a handle. A slot that has used up its generations is set aside until all 2^20 slots are worn, which
//! takes at least 2^29 objects. A device's table continues where the previous device's ended ([`Table::successor`]).
//!
//! An object belongs to the [`Owner`] whose call made it, until another owner's call names it: then it is [`SHARED`].
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::VecDeque;

const INDEX_BITS: u32 = 20;
const MAX_SLOTS: usize = 1 << INDEX_BITS;
const INDEX_MASK: u32 = (MAX_SLOTS - 1) as u32;
#[cfg(test)]
const GENERATIONS: u32 = 1 << (31 - INDEX_BITS);
/// `Slot::live` of an empty slot.
const FREE: u32 = u32::MAX;

/// A kind of object, by the generations of its handles: from 1 to 2,047, and not shared with another kind.
pub trait Kind {
    const FIRST: u32;
    const LAST: u32;
}

/// Whose calls use a table.
pub type Owner = u32;
/// The owner of objects that several owners use.
pub const SHARED: Owner = 0;

struct Slot<T> {
    /// Generation of the object in the slot, or `FREE`.
    live: u32,
    /// Generation of the next object in this slot.
    next: u32,
    owner: Cell<Owner>,
    value: Option<T>,
}

pub struct Table<T> {
    /// The owner whose call is running.
    pub caller: Owner,
    slots: Vec<Slot<T>>,
    /// Reusable slots, oldest first, so that generations wear evenly.
    free: VecDeque<u32>,
    /// Slots whose generations are used up.
    worn: VecDeque<u32>,
    live: usize,
}

impl<T: Kind> Default for Table<T> {
    fn default() -> Self {
        // Slot 0 stays unused: handle 0 is never valid, so a forgotten initialisation is an error.
        let unused = Slot {
            live: FREE,
            next: T::FIRST,
            owner: Cell::new(SHARED),
            value: None,
        };
        Self {
            caller: SHARED,
            slots: vec![unused],
            free: VecDeque::new(),
            worn: VecDeque::new(),
            live: 0,
        }
    }
}

impl<T: Kind> Table<T> {
    pub fn len(&self) -> usize {
        self.live
    }

    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Stores an object and returns its handle; returns the object if 2^20 are live.
    pub fn insert(&mut self, value: T) -> Result<i32, T> {
        let index = if let Some(index) = self.free.pop_front() {
            index
        } else if self.slots.len() < MAX_SLOTS {
            self.slots.push(Slot {
                live: FREE,
                next: T::FIRST,
                owner: Cell::new(SHARED),
                value: None,
            });
            (self.slots.len() - 1) as u32
        } else if let Some(index) = self.worn.pop_front() {
            self.slots[index as usize].next = T::FIRST;
            index
        } else {
            return Err(value);
        };
        let slot = &mut self.slots[index as usize];
        slot.live = slot.next;
        slot.next += 1;
        slot.owner.set(self.caller);
        slot.value = Some(value);
        self.live += 1;
        Ok(((slot.live << INDEX_BITS) | index) as i32)
    }

    /// The slot of a live handle. From now on the object is shared if the caller did not make it.
    #[inline]
    pub fn slot(&self, handle: i32) -> Option<u32> {
        let handle = handle as u32;
        let index = handle & INDEX_MASK;
        let slot = self.slots.get(index as usize)?;
        if slot.live != handle >> INDEX_BITS {
            return None;
        }
        if slot.owner.get() != self.caller {
            slot.owner.set(SHARED);
        }
        Some(index)
    }

    /// Makes an object outlive its owner.
    pub fn share(&self, handle: i32) {
        if let Some(slot) = self.slot(handle) {
            self.slots[slot as usize].owner.set(SHARED);
        }
    }

    /// Handles of the objects that only `owner` has used.
    pub fn owned(&self, owner: Owner) -> Vec<i32> {
        let slots = (0u32..).zip(&self.slots);
        slots
            .filter(|(_, slot)| slot.live != FREE && slot.owner.get() == owner)
            .map(|(index, slot)| ((slot.live << INDEX_BITS) | index) as i32)
            .collect()
    }

    /// The handle of a live slot.
    pub fn handle(&self, slot: u32) -> Option<i32> {
        let live = self.slots.get(slot as usize)?.live;
        (live != FREE).then_some(((live << INDEX_BITS) | slot) as i32)
    }

    #[inline]
    pub fn at(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.value.as_ref()
    }

    #[inline]
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.value.as_mut()
    }

    pub fn get(&self, handle: i32) -> Option<&T> {
        self.at(self.slot(handle)?)
    }

    pub fn remove(&mut self, handle: i32) -> Option<T> {
        let index = self.slot(handle)?;
        let slot = &mut self.slots[index as usize];
        slot.live = FREE;
        self.live -= 1;
        if slot.next > T::LAST {
            self.worn.push_back(index);
        } else {
            self.free.push_back(index);
        }
        slot.value.take()
    }

    /// Every live object with its handle.
    pub fn iter(&self) -> impl Iterator<Item = (i32, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let value = slot.value.as_ref()?;
            Some((((slot.live << INDEX_BITS) | index as u32) as i32, value))
        })
    }

    /// Removes and returns every object.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        let next = self.successor();
        let slots = std::mem::replace(self, next).slots;
        slots.into_iter().filter_map(|slot| slot.value)
    }

    /// An empty table in which no handle of this one will ever be valid.
    pub fn successor(&self) -> Self {
        let mut next = Self {
            caller: SHARED,
            slots: Vec::with_capacity(self.slots.len()),
            free: self.free.clone(),
            worn: self.worn.clone(),
            live: 0,
        };
        for (index, slot) in self.slots.iter().enumerate() {
            next.slots.push(Slot {
                live: FREE,
                next: slot.next,
                owner: Cell::new(SHARED),
                value: None,
            });
            if slot.live == FREE {
                continue;
            }
            match slot.next > T::LAST {
                true => next.worn.push_back(index as u32),
                false => next.free.push_back(index as u32),
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! kind {
        ($type:ty, $first:expr, $last:expr) => {
            impl Kind for $type {
                const FIRST: u32 = $first;
                const LAST: u32 = $last;
            }
        };
    }
    kind!(char, 1, 7);
    kind!(i32, 8, GENERATIONS - 1);
    kind!(usize, 1, GENERATIONS - 1);

    #[test]
    fn kinds_have_no_handle_in_common() {
        let (mut letters, mut numbers) = (Table::default(), Table::default());
        for i in 0..1000 {
            let (letter, number) = (letters.insert('a').unwrap(), numbers.insert(i).unwrap());
            assert!(letter as u32 > INDEX_MASK && number > letter);
            assert_eq!((letters.get(number), numbers.get(letter)), (None, None));
            letters.remove(letter);
            numbers.remove(number);
        }
    }

    #[test]
    fn stale_handles_stay_dead() {
        let mut table = Table::default();
        let first = table.insert('a').unwrap();
        assert_eq!(table.get(first), Some(&'a'));
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('b').unwrap();
        assert_ne!(first, second);
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&'b'));
        assert_eq!(table.get(-1), None);
        assert_eq!(table.get(0), None);
        assert_eq!(table.get(i32::MAX), None);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn handles_are_never_issued_twice() {
        let mut table = Table::default();
        let mut seen = std::collections::HashSet::new();
        for i in 0..100_000 {
            let handle = table.insert(i).unwrap();
            assert!(handle > 0);
            assert!(seen.insert(handle), "handle {handle} issued twice");
            assert_eq!(table.remove(handle), Some(i));
        }
        // One slot lasts 2,040 objects, so 100,000 need 50 slots.
        assert!(table.slots.len() <= 52);
    }

    #[test]
    fn a_successor_issues_no_handle_again() {
        let mut table = Table::default();
        let mut seen = std::collections::HashSet::new();
        for round in 0..3000 {
            let handles = [0, 1, 2].map(|i| table.insert(i).unwrap());
            assert!(
                handles.iter().all(|&h| seen.insert(h)),
                "one of {handles:?} was issued twice"
            );
            table.remove(handles[1]);
            if round % 2 == 0 {
                table = table.successor();
            } else {
                assert_eq!(table.drain().count(), 2);
            }
            assert!(table.is_empty());
            assert!(handles.iter().all(|&h| table.get(h).is_none()));
        }
        // One slot lasts 2,040 objects.
        assert!(table.slots.len() <= 9);
    }

    #[test]
    fn what_another_caller_names_is_shared() {
        let mut table = Table {
            caller: 1,
            ..Table::default()
        };
        let handles = [0, 1, 2, 3].map(|i| table.insert(i).unwrap());
        assert_eq!(table.get(handles[0]), Some(&0));
        table.remove(handles[1]);
        table.share(handles[3]);
        table.caller = 2;
        let other = table.insert(4).unwrap();
        assert_eq!(table.get(handles[1]), None);
        assert_eq!(table.get(handles[2]), Some(&2));
        assert_eq!(table.owned(1), [handles[0]]);
        assert_eq!(table.owned(2), [other]);
        // Slots that are used again belong to whoever uses them now.
        table.remove(handles[0]);
        for _ in 0..5 {
            table.insert(5).unwrap();
        }
        assert_eq!(table.slots.len(), 9);
        assert!(table.owned(1).is_empty());
        assert!(table.successor().owned(2).is_empty());
    }

    #[test]
    fn a_full_table_gives_the_object_back() {
        let mut table = Table::default();
        for i in 0..MAX_SLOTS - 1 {
            table.insert(i).unwrap();
        }
        assert_eq!(table.insert(7), Err(7));
    }
}
