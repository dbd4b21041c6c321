//! One answer to one prompt, piece by piece, for routes that write it in a form of their own. Their requests are
//! translated to those of OpenAI's routes, and run as those do.

use std::sync::Arc;

use super::answer::{Answer, Piece};
use super::decoding::blamed;
use super::generation::{Form, Job};
use super::request::Request;
use super::usage::Counts;
use crate::serve::app::App;
use crate::serve::failure::Failure;
use crate::serve::json::Admitted;
use crate::serve::places::Place;
use crate::serve::work::{self, TokenReceiver};
use rsgen_core::error::Result;
use rsgen_core::types::FinishReason;

/// The names of fields: in the route that a request is translated to, and in its own.
pub(super) type Names = &'static [(&'static str, &'static str)];

/// An answer that is being generated.
pub(super) struct Single {
    names: Names,
    answer: Answer,
    tokens: TokenReceiver,
    /// Whether its end has been told.
    has_ended: bool,
    /// What ended it, after the pieces that came before.
    failed: Option<Failure>,
    unbounded: Option<&'static str>,
    pub(super) counts: Counts,
}

/// The failure in the names of the request.
pub(super) fn renamed(failure: Failure, names: Names) -> Failure {
    let Some(param) = failure.param.clone() else { return failure };
    match names.iter().find(|(from, _)| *from == param) {
        // The message of a schema names the field of the configuration.
        Some(("response_format", to)) => failure.renamed("response_format", to).renamed("json_schema", to),
        Some((from, to)) => failure.renamed(from, to),
        None => failure,
    }
}

impl Single {
    /// Begins the answer to a request that is translated already.
    ///
    /// # Errors
    /// When the request breaks a rule of the route that it is translated to.
    pub(super) async fn begin(
        app: &Arc<App>,
        request: Request,
        place: Place,
        (form, names): (&'static Form, Names),
    ) -> Result<Self, Failure> {
        let prepared = work::run(app, place.clone(), move |generator, interrupted| {
            let job = Job::new(generator, &request, form, interrupted);
            Ok(job.and_then(|job| {
                let streams = job.streams(generator, &request)?;
                Ok((job, streams))
            }))
        });
        let prepared = prepared.await?.map_err(|failure| renamed(app.public(failure), names));
        let (job, mut streams) = prepared?;
        let Some(stream) = streams.pop() else {
            return Err(Failure::internal("a request without a prompt was begun"));
        };
        Ok(Self {
            names,
            answer: job.answer(0, &Piece::default()),
            tokens: work::tokens(app, stream, place, 1),
            has_ended: false,
            failed: None,
            unbounded: job.unbounded,
            counts: Counts { prompt: job.num_prompt_tokens(), ..Counts::default() },
        })
    }

    /// The next piece, of all tokens that are ready; `None` at the end.
    ///
    /// # Errors
    /// When the search fails, or the server ends.
    pub(super) async fn next(&mut self) -> Result<Option<Piece>, Failure> {
        if let Some(failure) = self.failed.take() {
            return Err(failure);
        }
        let Some(first) = self.tokens.next().await else {
            // Without a token there is an end, too.
            let end = Piece { finish: Some(FinishReason::Length), ..Piece::default() };
            return Ok((!std::mem::replace(&mut self.has_ended, true)).then_some(end));
        };
        let first = first.map_err(|failure| self.failure(failure))?;
        let ready: Vec<_> = self.tokens.ready().collect();
        let mut piece = self.answer.push(&first);
        self.counts.completion += 1;
        for token in ready {
            match token {
                Ok(token) => {
                    self.counts.completion += 1;
                    piece.extend(self.answer.push(&token));
                }
                Err(failure) => self.failed = Some(self.failure(failure)),
            }
        }
        self.counts.reasoning += piece.reasoning_tokens;
        self.has_ended |= piece.finish.is_some();
        self.counts.cached = self.tokens.cached_tokens();
        Ok(Some(piece))
    }

    fn failure(&self, failure: Failure) -> Failure {
        renamed(blamed(failure, self.unbounded), self.names)
    }
}

/// The request of a route that generates one answer, its model, and the place that it has.
pub(super) struct Asked {
    pub(super) app: Arc<App>,
    pub(super) request: Request,
    pub(super) place: Place,
    /// The fields without an effect.
    pub(super) ignored: Vec<String>,
    pub(super) model: String,
}

impl Asked {
    /// Checks a body.
    ///
    /// # Errors
    /// As for [`Request::new`].
    pub(super) fn new(route: super::fields::Routes, admitted: Admitted) -> Result<Self, Failure> {
        let Admitted { app, fields, place, tenant } = admitted;
        let request = Request::new(&app, route, fields)?.of(tenant);
        let (ignored, model) = (request.ignored().to_vec(), request.model(&app));
        Ok(Self { app, request, place, ignored, model })
    }
}
