//! A limit of time, as in transformers' `MaxTimeCriteria`.

use std::sync::Arc;
use std::time::Instant;

use rsgen_core::{FinishReason, Result, message, refuse_if};

use super::super::resolved::ResolvedConfig;
use super::{Built, StopContext, StoppingCriterion};

/// Stops every row once more than `max_time` seconds have passed since the criterion was made, or since a
/// given time.
#[derive(Debug, Clone)]
pub struct MaxTimeCriteria {
    max_time: f64,
    start: Instant,
}

impl MaxTimeCriteria {
    /// Starts the clock now.
    ///
    /// # Errors
    /// When `max_time` is negative or not finite.
    pub fn new(max_time: f64) -> Result<Self> {
        Self::since(max_time, Instant::now())
    }

    /// Starts the clock at `start`.
    ///
    /// # Errors
    /// As for [`MaxTimeCriteria::new`].
    pub fn since(max_time: f64, start: Instant) -> Result<Self> {
        refuse_if(!(max_time >= 0.0 && max_time.is_finite()), "max_time", || {
            message!(
                "must be a number of seconds of 0 or more, but is {max_time:?}; " {None} " sets no limit"
            )
        })?;
        Ok(Self { max_time, start })
    }

    pub(super) fn build(config: &ResolvedConfig) -> Built {
        match config.fields.max_time {
            None => Ok(None),
            Some(max_time) => Ok(Some(Arc::new(Self::new(max_time)?))),
        }
    }
}

impl StoppingCriterion for MaxTimeCriteria {
    fn should_stop(&self, _row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        Ok((self.start.elapsed().as_secs_f64() > self.max_time).then_some(FinishReason::Time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_no_duration_are_refused() {
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            let message = MaxTimeCriteria::new(bad).unwrap_err().to_string();
            assert!(message.starts_with("`max_time` must be a number of seconds of 0 or more"), "{message}");
        }
        assert!(MaxTimeCriteria::new(1e300).is_ok());
    }
}
