// Owners of Rust's containers, after elements were taken out of them and others put into the memory that they left.
// What malloc gets back for each is printed as by heap_owners.
//
// usage: heap_of_rust [COUNT]
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::hash::BuildHasherDefault;
use std::fs::File;
use std::io::Read;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};
use std::{cell::RefCell, mem};

#[repr(C)]
struct MallocInfo {
    figures: [usize; 10],
}
extern "C" {
    fn mallinfo2() -> MallocInfo;
}
fn in_use() -> usize {
    let figures = unsafe { mallinfo2() }.figures;
    figures[4] + figures[7] // those with mappings of their own, and the rest
}

type Hasher = BuildHasherDefault<DefaultHasher>; // the same order in each run

struct Tree {
    left: Option<Box<Tree>>,
    right: Option<Box<Tree>>,
    weight: [u8; 40],
}
struct Cycle {
    next: RefCell<Option<Rc<Cycle>>>,
    numbers: Vec<u32>,
}
struct Ring(Rc<Cycle>);
unsafe impl Send for Ring {}
struct Part {
    whole: Mutex<Weak<Part>>,
    parts: Mutex<Vec<Arc<Part>>>,
    name: String,
}

trait Shape {
    fn weight(&self) -> usize;
}
struct Dot(u8);
struct Path(Vec<u64>);
impl Shape for Dot {
    fn weight(&self) -> usize {
        self.0 as usize
    }
}
impl Shape for Path {
    fn weight(&self) -> usize {
        self.0.len()
    }
}
type AnyShape = Box<dyn Shape + Send>;

static TREE: Mutex<Option<Box<Tree>>> = Mutex::new(None);
static RING: Mutex<Option<Ring>> = Mutex::new(None);
static ROWS: Mutex<HashMap<u64, Vec<u64>, Hasher>> = Mutex::new(HashMap::with_hasher(Hasher::new()));
static NAMES: Mutex<HashSet<String, Hasher>> = Mutex::new(HashSet::with_hasher(Hasher::new()));
static TEXT: Mutex<String> = Mutex::new(String::new());
static WHOLE: Mutex<Option<Arc<Part>>> = Mutex::new(None);
static QUEUE: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());
static FIRST: Mutex<BinaryHeap<Vec<u64>>> = Mutex::new(BinaryHeap::new());
static SORTED: Mutex<BTreeMap<String, Vec<u64>>> = Mutex::new(BTreeMap::new());
static SHAPES: Mutex<BTreeMap<u32, AnyShape>> = Mutex::new(BTreeMap::new());
static DRAWN: Mutex<Vec<AnyShape>> = Mutex::new(Vec::new());
static DUE: Mutex<VecDeque<AnyShape>> = Mutex::new(VecDeque::new());
static LINES: Mutex<LinkedList<Option<String>>> = Mutex::new(LinkedList::new());

fn tree(count: usize) -> Option<Box<Tree>> {
    let left = count.checked_sub(1)? / 2;
    Some(Box::new(Tree { left: tree(left), right: tree(count - 1 - left), weight: [7; 40] }))
}

fn part(depth: usize, whole: Weak<Part>) -> Arc<Part> {
    let name = format!("a part {depth} levels above the last ones");
    let one = Arc::new(Part { whole: Mutex::new(whole), parts: Mutex::new(Vec::new()), name });
    for _ in 0..if depth > 0 { 6 } else { 0 } {
        let below = part(depth - 1, Arc::downgrade(&one));
        one.parts.lock().unwrap().push(below);
    }
    one
}

fn shape(n: usize) -> AnyShape {
    if n % 2 == 0 {
        Box::new(Dot(1))
    } else {
        Box::new(Path(vec![1; 6 + n % 12]))
    }
}

/// Fill what sorts and what has objects of a trait, and take some out again.
fn mix(count: usize, seed: &mut usize) {
    let (mut sorted, mut shapes) = (SORTED.lock().unwrap(), SHAPES.lock().unwrap());
    let (mut drawn, mut due, mut lines) = (DRAWN.lock().unwrap(), DUE.lock().unwrap(), LINES.lock().unwrap());
    for turn in 0..3 {
        for n in 0..count {
            sorted.insert(format!("{:x}", (n * 7919) << turn), vec![1; 6 + n % 9]);
            shapes.insert((n << turn) as u32, shape(n));
            drawn.push(shape(n + 1));
            due.push_back(shape(n));
            lines.push_back(if n % 3 > 0 { Some("of a line ".repeat(n % 5)) } else { None });
        }
        sorted.retain(|_, row| row.len() % 3 != 0);
        shapes.retain(|n, _| n % 4 != 0);
        drawn.retain(|one| one.weight() % 5 != 0);
        for _ in 0..count / 2 {
            due.pop_front();
            lines.pop_front();
        }
        churn(seed);
    }
}

/// Allocate and free blocks of many sizes.
fn churn(seed: &mut usize) {
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    for _ in 0..40_000 {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let number = *seed >> 33;
        if number & 3 == 0 && !blocks.is_empty() {
            blocks.swap_remove((number >> 2) % blocks.len());
        } else {
            blocks.push(vec![1; number % 600 + 1]);
        }
    }
}

fn fill(count: usize) {
    let mut seed = 1;
    let old = tree(count);
    churn(&mut seed);
    *TREE.lock().unwrap() = tree(count);
    drop(old);
    let cycle = |n: usize| Rc::new(Cycle { next: RefCell::new(None), numbers: vec![n as u32; 10 + n % 20] });
    let all: Vec<Rc<Cycle>> = (0..count).map(cycle).collect();
    for (n, one) in all.iter().enumerate() {
        *one.next.borrow_mut() = Some(all[(n + 1) % count].clone());
    }
    *RING.lock().unwrap() = Some(Ring(all[0].clone()));
    drop(all);
    let mut rows = ROWS.lock().unwrap();
    for n in 0..count as u64 {
        rows.insert(n, vec![n; (n % 30) as usize]);
    }
    rows.retain(|n, _| n % 2 == 0);
    churn(&mut seed);
    for n in 0..count as u64 / 3 {
        rows.insert(n << 20, vec![n; 9]);
    }
    let mut names = NAMES.lock().unwrap();
    for n in 0..count {
        names.insert(format!("entry-{}", n * 7919));
    }
    names.retain(|name| name.len() % 2 == 0);
    churn(&mut seed);
    let mut text = TEXT.lock().unwrap();
    (0..count * 20).for_each(|n| text.push((b'a' + (n % 26) as u8) as char));
    *WHOLE.lock().unwrap() = Some(part(4, Weak::new()));
    let mut queue = QUEUE.lock().unwrap();
    for n in 0..2 * count {
        queue.push_back("the text of an event ".repeat(n % 4));
        if n >= count {
            queue.pop_front();
        }
    }
    let mut first = FIRST.lock().unwrap();
    (0..count as u64).for_each(|n| first.push(vec![n * 31 % 1009; 6]));
    (0..count / 3).for_each(|_| drop(first.pop()));
    churn(&mut seed);
    mix(count, &mut seed);
}

fn freed<T>(name: &str, owner: T) {
    let before = in_use();
    drop(owner);
    println!("freed {} {}", name, before - in_use());
}

fn main() {
    fill(std::env::args().nth(1).map_or(2000, |count| count.parse().unwrap()));
    println!("ready");
    // The buffer of std's own would be such memory, too, of which no word says what is used.
    if File::open("/dev/stdin").unwrap().read(&mut [0]).unwrap() > 0 {
        freed("TREE", TREE.lock().unwrap().take());
        let ring = RING.lock().unwrap().take().unwrap();
        let before = in_use();
        ring.0.next.take();
        drop(ring);
        println!("freed RING {}", before - in_use());
        freed("ROWS", mem::take(&mut *ROWS.lock().unwrap()));
        freed("NAMES", mem::take(&mut *NAMES.lock().unwrap()));
        freed("TEXT", mem::take(&mut *TEXT.lock().unwrap()));
        freed("WHOLE", WHOLE.lock().unwrap().take());
        freed("QUEUE", mem::take(&mut *QUEUE.lock().unwrap()));
        freed("FIRST", mem::take(&mut *FIRST.lock().unwrap()));
        freed("SORTED", mem::take(&mut *SORTED.lock().unwrap()));
        freed("SHAPES", mem::take(&mut *SHAPES.lock().unwrap()));
        freed("DRAWN", mem::take(&mut *DRAWN.lock().unwrap()));
        freed("DUE", mem::take(&mut *DUE.lock().unwrap()));
        freed("LINES", mem::take(&mut *LINES.lock().unwrap()));
        println!("done");
    }
}
