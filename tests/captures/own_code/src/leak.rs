use std::collections::HashMap;

struct Session {
    id: u64,
    history: Vec<String>,
}

fn remember(sessions: &mut HashMap<u64, Session>, id: u64) {
    let session = sessions.entry(id).or_insert_with(|| Session { id, history: Vec::new() });
    for line in 0..20 {
        session.history.push(format!("request {line} of session {}: {}", session.id, "x".repeat(80)));
    }
}

fn index(sessions: &HashMap<u64, Session>) -> Vec<(u64, usize)> {
    let mut all: Vec<(u64, usize)> = sessions.values().map(|s| (s.id, s.history.len())).collect();
    all.sort();
    all
}

fn main() {
    let mut sessions = HashMap::new();
    for id in 0..500 {
        remember(&mut sessions, id);
    }
    let all = index(&sessions);
    println!("{} sessions", all.len());
}
