//! Tests of the page heap.
use super::*;
use crate::os::linux::Linux;
#[test]
fn smoke() {
    let heap = std::boxed::Box::new(PageHeap::new(Linux, 128));
    let mut all = std::vec::Vec::new();
    for i in 0..2000usize {
        let s = heap.alloc(1 + i % 7, 1 << (i % 3), Use::Large, 10).unwrap();
        unsafe { s.base.as_ptr().write_bytes(1, s.slices << 16) };
        all.push(s.base);
        if i % 3 == 0 {
            let b = all.swap_remove(i / 3 % all.len());
            unsafe { heap.free(b, Dirty::All) }
        }
        if i % 50 == 0 {
            heap.check().unwrap();
        }
    }
    std::println!("{:#?}", heap.totals());
    for b in all {
        unsafe { heap.free(b, Dirty::All) };
    }
    heap.check().unwrap();
    heap.purge_all();
    heap.check().unwrap();
    std::println!("{:#?}", heap.totals());
}
