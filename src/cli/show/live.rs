//! Draws pictures while a text is generated: again and again in place in a terminal, once at the end
//! elsewhere.

use std::io::{self, Write, stdout};
use std::time::{Duration, Instant};

use crate::cli::failure::Failure;
use crate::cli::generate::warn;
use crate::cli::terminal::Terminal;
use crate::engine::{GenerationOutput, Interrupt, TokenStream};
use crate::generator::Prepared;
use crate::pictures::text::Look;
use crate::pictures::{Pictures, View};

/// The shortest time between two drawings.
const INTERVAL: Duration = Duration::from_millis(60);

/// Runs a call of a single prompt, and draws it. After an interrupt, draws what there is.
pub(in crate::cli) fn draw(
    prepared: Prepared<'_>,
    views: &[View],
    terminal: &Terminal,
    interrupted: &mut Interrupt<'_>,
) -> Result<GenerationOutput, Failure> {
    warn(&prepared);
    let mut stream = prepared.stream()?;
    let mut drawing = Drawing {
        out: stdout().lock(),
        live: terminal.live_look(),
        lines: 0,
        drawn: None,
        pictures: Pictures::default(),
        views,
    };
    let result = follow(&mut stream, &mut drawing, interrupted);
    if let Some(output) = stream.output() {
        // The events of the end, which an interrupted stream has too.
        drawing.pictures = Pictures::of_output(output);
    }
    drawing.finish(&terminal.look())?;
    result?;
    stream.into_output().map_err(Failure::from)
}

fn follow<W: Write>(
    stream: &mut TokenStream,
    drawing: &mut Drawing<'_, W>,
    interrupted: &mut Interrupt<'_>,
) -> Result<(), Failure> {
    for seq in 0.. {
        let Some(event) = stream.event(seq, interrupted)? else { break };
        drawing.pictures.add(&event.event);
        drawing.refresh()?;
    }
    Ok(())
}

/// The pictures one below the other.
pub(super) fn text(pictures: &Pictures, views: &[View], look: &Look) -> String {
    let texts: Vec<String> = views.iter().map(|view| pictures.text(*view, look)).collect();
    texts.join("\n")
}

/// A drawing that is replaced in place.
struct Drawing<'a, W: Write> {
    out: W,
    /// `None` where lines cannot be overwritten.
    live: Option<Look>,
    /// The number of lines of the current drawing.
    lines: usize,
    drawn: Option<Instant>,
    pictures: Pictures,
    views: &'a [View],
}

impl<W: Write> Drawing<'_, W> {
    /// Redraws, unless the last drawing is very recent.
    fn refresh(&mut self) -> io::Result<()> {
        let Some(look) = self.live else { return Ok(()) };
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < INTERVAL) {
            return Ok(());
        }
        let text = text(&self.pictures, &self.views[..1], &look);
        self.replace(&text)?;
        self.drawn = Some(Instant::now());
        Ok(())
    }

    /// Draws the final picture.
    fn finish(mut self, look: &Look) -> io::Result<()> {
        let text = text(&self.pictures, self.views, look);
        self.replace(&text)
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        let back = match self.lines {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        };
        self.lines = text.lines().count();
        self.out.write_all((back + text).as_bytes())?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_overwrites_the_previous_one() {
        let mut drawing = Drawing {
            out: Vec::new(),
            live: None,
            lines: 0,
            drawn: None,
            pictures: Pictures::default(),
            views: &[],
        };
        drawing.replace("one\ntwo\n").unwrap();
        drawing.replace("three\n").unwrap();
        assert_eq!(String::from_utf8(drawing.out).unwrap(), "one\ntwo\n\x1b[2A\r\x1b[Jthree\n");
    }
}
