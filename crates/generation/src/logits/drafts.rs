//! The processors of drafts: those of the request, in the order in which transformers applies them to its
//! assistant.

use std::sync::Arc;

use super::{AllowedSequencesLogitsProcessor, LogitsProcessorList, ProcessorStates};

/// The processors that change the scores of an assistant.
///
/// transformers passes an assistant all processors of the call, besides those that the assistant builds from
/// the same fields. So the warpers run twice, a prefix function runs after the other fields, and a
/// `MinLengthLogitsProcessor` of the caller's is left out. A processor with an unconditional sequence is left
/// out too: drafts have none.
pub(crate) struct DraftProcessors {
    pub(crate) list: LogitsProcessorList,
    /// For each processor its index in the request's list.
    indices: Vec<usize>,
    /// How many of the last ones run a second time.
    num_repeated: usize,
}

impl DraftProcessors {
    /// Those of a request; `is_unconditional(index)` says whether a processor has unconditional sequences.
    pub(crate) fn of(request: &LogitsProcessorList, is_unconditional: impl Fn(usize) -> bool) -> Self {
        let (all, len) = (&request.processors, request.processors.len());
        let name = |index: usize| all[index].name();
        let is_prefix = |index: &usize| {
            let names = ["PrefixConstrainedLogitsProcessor", AllowedSequencesLogitsProcessor::NAME];
            *index < request.num_fields && names.contains(&name(*index))
        };
        let is_length =
            |index: &usize| *index >= request.num_fields && name(*index) == "MinLengthLogitsProcessor";
        let fields = (0..request.num_fields).filter(|index| !is_prefix(index));
        let prefix = (0..request.num_fields).filter(is_prefix);
        let others = (request.num_fields..len).filter(|index| !is_length(index));
        let indices = fields.chain(prefix).chain(others).chain(len - request.num_warpers..len);
        let indices: Vec<usize> = indices.filter(|&index| !is_unconditional(index)).collect();
        let list = indices.iter().map(|&index| Arc::clone(&all[index])).collect();
        Self { list: LogitsProcessorList::new(list), indices, num_repeated: request.num_warpers }
    }

    /// Those of a request that depend on the scores alone, once each: for an assistant with other tokens.
    pub(crate) fn warpers(request: &LogitsProcessorList) -> Self {
        let len = request.processors.len();
        let is_watermark = |index: &usize| request.processors[*index].name().contains("Watermark");
        let indices: Vec<usize> =
            (len - request.num_warpers..len).filter(|index| !is_watermark(index)).collect();
        let list = indices.iter().map(|&index| Arc::clone(&request.processors[index])).collect();
        Self { list: LogitsProcessorList::new(list), indices, num_repeated: 0 }
    }

    /// The states of a draft that begins after the tokens of a row with these `states`. What the draft does
    /// to them never reaches the row.
    pub(crate) fn fork_states(&self, states: &ProcessorStates) -> ProcessorStates {
        let once = self.indices.len() - self.num_repeated;
        let fork = |(place, &index): (usize, &usize)| {
            let state = states.states.get(index)?.as_ref().filter(|_| place < once)?;
            Some(state.fork())
        };
        ProcessorStates { states: self.indices.iter().enumerate().map(fork).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logits::{LogitsProcessor, RowContext};
    use rsgen_core::Result;

    struct Named(&'static str);

    impl LogitsProcessor for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn process_row(&self, _scores: &mut [f32], _row: &mut RowContext<'_>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_assistant_gets_the_processors_in_transformers_order_and_the_warpers_twice() {
        let names = [
            "MinLengthLogitsProcessor",
            "PrefixConstrainedLogitsProcessor",
            "ForcedEOSTokenLogitsProcessor",
            "Guidance",
            "Own",
            "MinLengthLogitsProcessor",
            "TemperatureLogitsWarper",
            "TopKLogitsWarper",
        ];
        let all = names.iter().map(|name| Arc::new(Named(name)) as Arc<dyn LogitsProcessor>).collect();
        let drafts = DraftProcessors::of(&LogitsProcessorList::of_request(all, 3, 2), |index| index == 3);
        assert_eq!(drafts.indices, [0, 2, 1, 4, 6, 7, 6, 7]);
        assert_eq!(drafts.list.names().last(), Some("TopKLogitsWarper"));
    }
}
