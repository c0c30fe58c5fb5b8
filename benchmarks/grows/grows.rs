// A program in Rust that becomes bigger in one line, when it gets a line of input.
use std::io::{self, BufRead};

#[inline(never)]
fn come_and_go() -> usize {
    (0..100).map(|n| vec![1u8; 3000 + n].len()).sum()
}

#[inline(never)]
fn fill(kept: &mut Vec<Vec<u8>>) {
    for n in 0..100_000 {
        kept.push(vec![n as u8 | 1; 1000]); /* planted: rust */
    }
}

fn main() {
    let mut line = String::new();
    println!("ready");
    io::stdin().lock().read_line(&mut line).unwrap();
    let mut kept = Vec::new();
    let passing = come_and_go();
    fill(&mut kept);
    println!("grew {}", kept.len() + passing + come_and_go());
    io::stdin().lock().read_line(&mut line).unwrap();
    println!("{}", kept.len());
}
