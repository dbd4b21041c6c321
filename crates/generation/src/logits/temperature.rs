//! Temperature: scores divided by one number, as in transformers' `TemperatureLogitsWarper`.

use rsgen_core::{Result, message, refuse_if};

use super::super::resolved::ResolvedConfig;
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Divides the scores by the temperature.
#[derive(Debug, Clone)]
pub struct TemperatureLogitsWarper {
    temperature: f32,
}

impl TemperatureLogitsWarper {
    /// Scores are divided by `temperature`.
    ///
    /// # Errors
    /// When it is not a positive number that float32 can hold.
    pub fn new(temperature: f64) -> Result<Self> {
        let narrow = temperature as f32;
        refuse_if(temperature == 0.0, "temperature", || {
            message!(
                "must be above 0, but is 0; for the most probable token at each step, use "
                {do_sample = false}
            )
        })?;
        refuse_if(!(narrow > 0.0 && narrow.is_finite()), "temperature", || {
            format!(
                "must be a positive number within the range of float32, but is {temperature:?}; 1.0 \
                 leaves the scores as they are"
            )
        })?;
        Ok(Self { temperature: narrow })
    }
}

impl BuiltIn for TemperatureLogitsWarper {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        match config.fields.temperature {
            None => Ok(None),
            // Many callers set it to mean greedy search, which this is.
            Some(0.0) if !config.do_sample => Ok(None),
            Some(temperature) => {
                let warper = Self::new(temperature)?;
                Ok((temperature != 1.0).then_some(warper))
            }
        }
    }
}

impl LogitsProcessor for TemperatureLogitsWarper {
    fn process_row(&self, scores: &mut [f32], _row: &mut RowContext<'_>) -> Result<()> {
        for score in scores {
            *score /= self.temperature;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FIRST, SECOND, process};
    use super::*;

    // TemperatureLogitsWarper(t)(ids, scores).tolist(), transformers 5.23
    #[test]
    fn scores_are_divided_in_float32_as_in_transformers() {
        assert_eq!(
            process(&TemperatureLogitsWarper::new(0.7).unwrap(), &[], &SECOND),
            [
                0.428_571_46,
                0.142_857_15,
                -1.0,
                3.142_857_3,
                2.714_285_6,
                -4.714_286,
                0.857_142_9,
                1.571_428_7
            ]
        );
        assert_eq!(
            process(&TemperatureLogitsWarper::new(1.3).unwrap(), &[], &FIRST),
            [
                1.153_846_1,
                -1.730_769_3,
                0.0,
                2.403_846_3,
                -0.384_615_4,
                2.403_846_3,
                f32::NEG_INFINITY,
                0.576_923_1
            ]
        );
    }

    #[test]
    fn zero_points_to_greedy_search_and_nonsense_is_refused() {
        let zero = TemperatureLogitsWarper::new(0.0).unwrap_err().to_string();
        assert!(zero.contains("do_sample=false"), "{zero}");
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e300, 1e-300] {
            let message = TemperatureLogitsWarper::new(bad).unwrap_err().to_string();
            assert!(message.contains("`temperature`") && message.contains(&format!("{bad:?}")), "{message}");
        }
    }
}
