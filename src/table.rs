//! Generational handle tables: a JS integer names one object, for ever.
//!
//! A handle is 31 bits: 20 bits of slot index, 11 bits of generation. A slot's generation grows with
//! every reuse, so a stale handle never finds the slot's new object. A slot that has used up its
//! generations is set aside until all 2^20 slots are worn, which takes 2^31 objects.
#![deny(unsafe_code)]

use std::collections::VecDeque;

const INDEX_BITS: u32 = 20;
const MAX_SLOTS: usize = 1 << INDEX_BITS;
const INDEX_MASK: u32 = (MAX_SLOTS - 1) as u32;
const LAST_GENERATION: u32 = (1 << (31 - INDEX_BITS)) - 1;
/// `Slot::live` of a slot that holds nothing.
const FREE: u32 = u32::MAX;

struct Slot<T> {
    /// Generation of the object in the slot, or `FREE`.
    live: u32,
    /// Generation that the next object here will get.
    next: u32,
    value: Option<T>,
}

pub struct Table<T> {
    slots: Vec<Slot<T>>,
    /// Reusable slots, oldest first, so that generations wear evenly.
    free: VecDeque<u32>,
    /// Slots whose generations are used up.
    worn: VecDeque<u32>,
    live: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        // Slot 0 stays unused: 0 is no handle, so a forgotten initialisation is an error.
        let unused = Slot {
            live: FREE,
            next: 0,
            value: None,
        };
        Self {
            slots: vec![unused],
            free: VecDeque::new(),
            worn: VecDeque::new(),
            live: 0,
        }
    }
}

impl<T> Table<T> {
    pub fn len(&self) -> usize {
        self.live
    }

    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Stores an object and returns its handle; gives the object back when 2^20 are live.
    pub fn insert(&mut self, value: T) -> Result<i32, T> {
        let index = if let Some(index) = self.free.pop_front() {
            index
        } else if self.slots.len() < MAX_SLOTS {
            self.slots.push(Slot {
                live: FREE,
                next: 0,
                value: None,
            });
            (self.slots.len() - 1) as u32
        } else if let Some(index) = self.worn.pop_front() {
            self.slots[index as usize].next = 0;
            index
        } else {
            return Err(value);
        };
        let slot = &mut self.slots[index as usize];
        slot.live = slot.next;
        slot.next += 1;
        slot.value = Some(value);
        self.live += 1;
        Ok(((slot.live << INDEX_BITS) | index) as i32)
    }

    /// The slot of a live handle.
    #[inline]
    pub fn slot(&self, handle: i32) -> Option<u32> {
        let handle = handle as u32;
        let index = handle & INDEX_MASK;
        let slot = self.slots.get(index as usize)?;
        (slot.live == handle >> INDEX_BITS).then_some(index)
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
        if slot.next > LAST_GENERATION {
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

    /// Takes every object out.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.live = 0;
        self.free.clear();
        self.worn.clear();
        self.slots.drain(..).filter_map(|slot| slot.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // One slot lasts 2,048 objects, so 100,000 need 49 slots.
        assert!(table.slots.len() <= 51);
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
