// Collections of Rust, which print their own sizes and capacities.
use std::collections::{HashMap, HashSet, VecDeque};

struct Engine {
    frames: Vec<[u64; 4]>,
    names: Vec<String>,
    table: HashMap<u64, Vec<u16>>,
    seen: HashSet<u32>,
    queue: VecDeque<u16>,
    boxed: Box<Vec<u32>>,
    none: Vec<u64>,
}

#[inline(never)]
fn filled(engine: &Engine) -> usize {
    engine.none.len()
}

fn main() {
    let mut frames = Vec::with_capacity(1000);
    frames.extend((0..700u64).map(|i| [i; 4]));
    let names: Vec<String> = (0..50).map(|i| format!("name number {:4}", i)).collect();
    let table: HashMap<u64, Vec<u16>> = (0..5000).map(|i| (i, vec![1u16; 3])).collect();
    let seen: HashSet<u32> = (0..100).collect();
    let mut queue: VecDeque<u16> = (0..300).collect();
    queue.drain(..200);
    queue.extend(0..150);
    let engine = Engine { frames, names, table, seen, queue, boxed: Box::new(vec![1, 2, 3]), none: Vec::new() };
    let (f, q) = (engine.frames.capacity(), engine.queue.capacity());
    println!("frames {} {} {}", engine.frames.len(), f, 32 * f);
    println!("names {} {} {}", engine.names.len(), engine.names.capacity(), 24 * engine.names.capacity());
    let room: usize = engine.names.iter().map(|name| name.capacity()).sum();
    println!("names[*].vec {} {1} {1}", 16 * engine.names.len(), room);
    println!("table.base.table {} {} -1", engine.table.len(), engine.table.capacity());
    println!("table.base.table[*].__1 15000 15000 30000");
    println!("seen.base.map.table {} {} -1", engine.seen.len(), engine.seen.capacity());
    println!("queue {} {} {}", engine.queue.len(), q, 2 * q);
    println!("boxed 3 3 12");
    filled(&engine);
}
