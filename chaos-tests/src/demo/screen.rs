//! Where the demo writes: a picture that is redrawn in place on a terminal, plain lines anywhere else.

use std::{
    env,
    io::{self, IsTerminal, Write},
};

use super::table::Style;

/// The output of the demo.
pub(super) struct Screen {
    out: Box<dyn Write + Send>,
    styled: bool,
    /// How many lines of the picture stand above the cursor.
    drawn: usize,
    /// The progress that plain output has told last.
    told: Option<usize>,
}

impl Screen {
    /// Standard output is for the summary if that is for programs; then all this goes to standard error, plain.
    pub(super) fn open(json: bool) -> Self {
        let dumb = env::var_os("NO_COLOR").is_some() || env::var_os("TERM").is_none_or(|term| term == "dumb");
        match json {
            true => Self::over(Box::new(io::stderr()), false),
            false => Self::over(Box::new(io::stdout()), io::stdout().is_terminal() && !dumb),
        }
    }

    fn over(out: Box<dyn Write + Send>, styled: bool) -> Self {
        Self { out, styled, drawn: 0, told: None }
    }

    /// A new section.
    pub(super) fn heading(&mut self, text: &str) {
        let text = self.painted(Style::Bold, text);
        self.line(&format!("\n{text}"));
    }

    /// A line of text.
    pub(super) fn say(&mut self, text: &str) {
        self.line(&format!("  {text}"));
    }

    /// Something that is done.
    pub(super) fn done(&mut self, text: &str) {
        let mark = self.painted(Style::Green, "✔");
        self.line(&format!("  {mark} {text}"));
    }

    /// Something that went wrong.
    pub(super) fn failed(&mut self, text: &str) {
        let mark = self.painted(Style::Red, "✗");
        self.line(&format!("\n{mark} {text}"));
    }

    /// Shows progress: the `picture` on a terminal, elsewhere the `sentence` if `step` is a new one.
    pub(super) fn progress(
        &mut self,
        picture: impl FnOnce() -> Vec<String>,
        sentence: impl FnOnce() -> String,
        step: usize,
    ) {
        if self.styled {
            self.draw(&picture());
        } else if self.told.replace(step) != Some(step) {
            self.write(&format!("  {}\n", sentence()));
        }
    }

    /// Leaves the last picture as it stands.
    pub(super) fn settle(&mut self) {
        (self.drawn, self.told) = (0, None);
    }

    /// Back to the first line of the last picture, and over it: in one write, and without wrapping, so that a
    /// narrow terminal cuts lines off instead of shifting them.
    fn draw(&mut self, lines: &[String]) {
        let up = if self.drawn == 0 { String::new() } else { format!("\x1b[{}A", self.drawn) };
        let body: String = lines.iter().map(|line| format!("{line}\x1b[K\n")).collect();
        self.write(&format!("\x1b[?7l{up}{body}\x1b[J\x1b[?7h"));
        self.drawn = lines.len();
    }

    fn line(&mut self, text: &str) {
        self.settle();
        self.write(&format!("{text}\n"));
    }

    fn painted(&self, style: Style, text: &str) -> String {
        if self.styled { style.paint(text) } else { text.to_owned() }
    }

    /// Nobody reads any more: no reason to stop half-way, with everything still up.
    fn write(&mut self, text: &str) {
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(styled: bool, write: impl FnOnce(&mut Screen)) -> String {
        let paper = Paper::default();
        write(&mut Screen::over(Box::new(paper.clone()), styled));
        String::from_utf8(paper.0.lock().unwrap().clone()).unwrap()
    }

    fn progress(screen: &mut Screen, step: usize) {
        screen.progress(|| vec!["a".into(), "b".into()], || format!("step {step}"), step);
    }

    #[test]
    fn plain_output_has_no_escapes_and_tells_a_step_once() {
        let text = written(false, |screen| {
            screen.heading("Title");
            [0, 0, 1, 1].into_iter().for_each(|step| progress(screen, step));
            screen.done("finished");
        });
        assert_eq!(text, "\nTitle\n  step 0\n  step 1\n  ✔ finished\n");
    }

    #[test]
    fn a_picture_is_drawn_over_the_last_one_until_it_is_settled() {
        let text = written(true, |screen| {
            progress(screen, 0);
            progress(screen, 0);
            screen.settle();
            progress(screen, 0);
        });
        assert_eq!(text.matches("\x1b[2A").count(), 1, "{text:?}");
        assert_eq!(text.matches("\x1b[?7l").count(), text.matches("\x1b[?7h").count());
    }
}
