// An animal in Rust, without a crate: it reports as those in C do (report.h).
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Duration;

fn write(report: &File, word: u64, value: u64) {
    report.write_all_at(&value.to_le_bytes(), word * 8).expect("report");
}

fn order(report: &File) -> u64 {
    let mut bytes = [0u8; 8];
    report.read_exact_at(&mut bytes, 10 * 8).expect("report");
    u64::from_le_bytes(bytes)
}

#[inline(never)]
fn tick(kept: &mut Vec<Vec<u8>>, at: usize) {
    let length = kept.len();
    kept[at % length][0] = 1;
}

fn main() {
    let path = std::env::var("ZOO_REPORT").expect("ZOO_REPORT");
    let report = OpenOptions::new().read(true).write(true).open(path).expect("report");
    let mut kept: Vec<Vec<u8>> = (0..10_000).map(|_| vec![1u8; 200]).collect();
    let names: HashMap<u32, String> = (0..1000).map(|i| (i, format!("the name of number {i}"))).collect();
    write(&report, 1, u64::from(std::process::id()));
    write(&report, 5, kept.len() as u64 + names.len() as u64);
    write(&report, 0, 1);
    let mut ticks = 0;
    while order(&report) != 1 {
        ticks += 1;
        tick(&mut kept, ticks as usize);
        write(&report, 2, ticks);
        std::thread::sleep(Duration::from_millis(10));
    }
    std::process::exit(7);
}
