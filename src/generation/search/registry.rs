//! The table of all searches, and what each entry of it becomes.
//!
//! An entry says all there is to say of a search outside of its own file: the method of that name and its
//! documentation, when it is chosen, what the method presets, and the configuration fields that it alone reads,
//! which the entry makes. The order of the entries is that of the choice. To add a search: its file, its entry,
//! its golden.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;

use super::super::config::GenerationConfig;
use super::super::mode::GenerationMode;
use super::super::plan::{GenerationPlan, PlanContext};
use super::Search;

/// Hands the table, and `$more`, to the macro `$then`.
///
/// Entries stand under their file, which has a function `plan`. An entry is `name Mode when condition`: the name of
/// the method and of transformers' mode, that of the [`GenerationMode`], and a function of the file that says
/// whether a merged configuration asks for it; the first that does is the search of a call. Then come the fields
/// that make it what it is (`fixed`: a caller of the method may not set them otherwise), those that hold unless the
/// caller sets them (`presets`), the fewest beams that it makes sense with, which is 0 for a search without beams,
/// and the fields that are made here.
macro_rules! for_each_search {
    ($then:ident $($more:tt)*) => {
        $then! {
            $($more)*
            beam {
                /// Finds the best output that holds the tokens of `force_words_ids` and `constraints`.
                constrained_beam_search ConstrainedBeamSearch when forces_words {
                    fixed: [do_sample = Setting::Flag(false)],
                    presets: [num_beams = Setting::Count(4)],
                    least_beams: 2,
                    fields: [
                        /// What the output of a constrained beam search has to hold: phrases of token ids, or lists of
                        /// phrases of which one is enough.
                        force_words_ids: Vec<ForcedWord> as impl Into<Vec<ForcedWord>> = "unset";
                    ]
                }

                /// Beam search in groups that are kept apart, so that results differ: 4 beams in 2 groups with a
                /// `diversity_penalty` of 1.0, unless set.
                group_beam_search GroupBeamSearch when has_groups {
                    fixed: [do_sample = Setting::Flag(false)],
                    presets: [
                        num_beams = Setting::Count(4),
                        num_beam_groups = Setting::Count(2),
                        diversity_penalty = Setting::Number(1.0),
                    ],
                    least_beams: 2,
                    fields: [
                        /// The number of groups that the beams are split into, which are kept apart by
                        /// `diversity_penalty`.
                        num_beam_groups: usize = "1";
                    ]
                }

                /// Beam search whose continuations are drawn at random.
                beam_sample BeamSample when draws {
                    fixed: [do_sample = Setting::Flag(true)],
                    presets: [num_beams = Setting::Count(4)],
                    least_beams: 2,
                    fields: []
                }

                /// Keeps the `num_beams` best continuations at each step, 4 unless set, and returns the best of what ends.
                beam_search BeamSearch when has_beams {
                    fixed: [do_sample = Setting::Flag(false)],
                    presets: [num_beams = Setting::Count(4)],
                    least_beams: 2,
                    fields: [
                        /// When beam search ends: `false` once it is unlikely that a better hypothesis follows, `true` with
                        /// as many hypotheses as beams, `"never"` only when no better one can follow.
                        early_stopping: EarlyStopping as impl Into<EarlyStopping> = "false";
                        /// The power of its length that the score of a hypothesis is divided by: above 0 favours long
                        /// ones.
                        length_penalty: f64 = "1.0";
                    ]
                }
            }

            dola {
                /// Contrasts the last layer's logits with those of an inner one; `dola_layers` says which, `"high"` unless
                /// set.
                dola Dola when has_layers {
                    fixed: [num_beams = Setting::Count(1)],
                    presets: [dola_layers = Setting::Text("high"), repetition_penalty = Setting::Number(1.2)],
                    least_beams: 0,
                    fields: [
                        /// `DoLa`: the inner layers to contrast with: `"low"`, `"high"` or a list of layers, 0 being the
                        /// embedding.
                        dola_layers: DolaLayers as impl Into<DolaLayers> = "unset";
                    ]
                }
            }

            contrastive {
                /// Takes, of the `top_k` most probable tokens (4 unless set), the one that is probable and leads to a state
                /// unlike those before it; `penalty_alpha` (0.6 unless set) weighs the two.
                contrastive_search ContrastiveSearch when contrasts {
                    fixed: [do_sample = Setting::Flag(false), num_beams = Setting::Count(1)],
                    presets: [penalty_alpha = Setting::Number(0.6), top_k = Setting::Count(4)],
                    least_beams: 0,
                    fields: [
                        /// Contrastive search: how much likeness to earlier states counts against a token, from 0 to 1.
                        penalty_alpha: f64 = "unset";
                    ]
                }
            }

            sample {
                /// Draws each token at random from the model's distribution.
                sample Sample when draws {
                    fixed: [do_sample = Setting::Flag(true), num_beams = Setting::Count(1)],
                    presets: [],
                    least_beams: 0,
                    fields: []
                }
            }

            greedy {
                /// Takes the most probable token at each step.
                greedy_search Greedy when always {
                    fixed: [do_sample = Setting::Flag(false), num_beams = Setting::Count(1)],
                    presets: [],
                    least_beams: 0,
                    fields: []
                }
            }
        }
    };
}
pub(crate) use for_each_search;

/// What the fields of a search come to.
#[derive(Clone)]
pub(in crate::generation) struct SearchPlan {
    /// The number of rows of each prompt that are computed in a step.
    pub(in crate::generation) lanes_each: usize,
    make: Arc<dyn Fn(GenerationPlan) -> Box<dyn Search> + Send + Sync>,
}

impl SearchPlan {
    /// A search that computes so many rows of each prompt in a step.
    pub(super) fn new<S: Search + 'static>(
        lanes_each: usize,
        make: impl Fn(GenerationPlan) -> S + Send + Sync + 'static,
    ) -> Self {
        Self { lanes_each, make: Arc::new(move |plan| Box::new(make(plan))) }
    }

    /// A search that computes the rows of the output, each by itself.
    pub(super) fn of_rows<S: Search + 'static>(
        config: &GenerationConfig,
        make: impl Fn(GenerationPlan) -> S + Send + Sync + 'static,
    ) -> Self {
        Self::new(config.num_return_sequences.unwrap_or(1), make)
    }
}

impl fmt::Debug for SearchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchPlan").field("lanes_each", &self.lanes_each).finish_non_exhaustive()
    }
}

/// The search that a plan asks for.
pub fn build(plan: GenerationPlan) -> Box<dyn Search> {
    let SearchPlan { make, .. } = plan.search.clone();
    make(plan)
}

macro_rules! functions {
    ($( $file:ident { $( $(#[doc = $doc:literal])* $name:ident $mode:ident when $condition:ident $entry:tt )* } )*) => {
        /// The first mode of the table that a merged configuration asks for.
        pub(in crate::generation) fn mode_of(config: &GenerationConfig) -> GenerationMode {
            let conditions: &[(fn(&GenerationConfig) -> bool, GenerationMode)] =
                &[$($( (super::$file::$condition, GenerationMode::$mode), )*)*];
            let asked = conditions.iter().find(|(condition, _)| condition(config));
            asked.map_or(GenerationMode::Greedy, |&(_, mode)| mode)
        }

        /// What the fields of a merged configuration come to in a mode.
        ///
        /// # Errors
        /// The first value that is not possible.
        pub(in crate::generation) fn plan(
            mode: GenerationMode,
            config: &GenerationConfig,
            context: &PlanContext,
        ) -> Result<SearchPlan> {
            match mode {
                $($( GenerationMode::$mode => super::$file::plan(config, context), )*)*
            }
        }
    };
}

for_each_search!(functions);
