//! What a program writes to its standard error: the first line, which may be its reason, and the last
//! ones, for our log. However much it writes, only so much is held. Pure.

use std::collections::VecDeque;

/// What is held of the beginning, in bytes.
const HEAD: usize = 4 * 1024;
/// What is held of the end, in bytes.
const TAIL: usize = 8 * 1024;
/// How many of the last lines reach our log.
const LINES: usize = 20;
/// The longest line or reason, in characters; the note of an event has room for 1024.
const LONGEST: usize = 800;

/// The beginning and the end of a program's log.
#[derive(Debug, Default)]
pub(super) struct Log {
    head: Vec<u8>,
    tail: VecDeque<u8>,
}

impl Log {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        let room = HEAD - self.head.len();
        self.head.extend(chunk.iter().take(room));
        let newest = chunk.len().saturating_sub(TAIL);
        self.tail.extend(chunk.iter().skip(newest));
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
    }

    /// The first line that says anything.
    pub(super) fn reason(&self) -> Option<String> {
        lines(&self.head).into_iter().next()
    }

    /// The last lines, oldest first.
    pub(super) fn last_lines(&self) -> Vec<String> {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let mut lines = lines(&tail);
        lines.split_off(lines.len().saturating_sub(LINES))
    }
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(plain).filter(|line| !line.is_empty()).collect()
}

/// A program's words, fit for a log line or an event: no control characters, not too long.
pub(super) fn plain(words: &str) -> String {
    let calm: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    calm.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_first_line_that_says_anything() {
        let mut log = Log::default();
        assert_eq!(log.reason(), None);
        log.push(b"\n  \nno spa");
        log.push(b"ce on \x1b[31mshelf\x07\nmore\n");
        assert_eq!(log.reason().unwrap(), "no space on  [31mshelf");
        assert_eq!(log.last_lines(), ["no space on  [31mshelf", "more"]);
    }

    #[test]
    fn a_flood_keeps_its_beginning_and_its_end_and_nothing_else() {
        let mut log = Log::default();
        log.push(b"first\n");
        for _ in 0..1000 {
            log.push(&[b'x'; 10_000]);
        }
        log.push(b"\nlast");
        assert_eq!(log.reason().unwrap(), "first");
        assert_eq!(log.last_lines().last().unwrap(), "last");
        assert!(log.head.len() <= HEAD && log.tail.len() <= TAIL && log.tail.capacity() <= 4 * TAIL);
        assert!(log.last_lines().iter().all(|line| line.chars().count() <= LONGEST));
    }

    #[test]
    fn only_the_last_lines_are_told() {
        let mut log = Log::default();
        (0..100).for_each(|n| log.push(format!("line {n}\n").as_bytes()));
        let told = log.last_lines();
        assert_eq!((told.len(), told[0].as_str()), (LINES, "line 80"));
    }
}
