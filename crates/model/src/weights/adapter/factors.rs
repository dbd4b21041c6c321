//! The factors of an adapter that stays beside the model, by the name of the module.

use std::collections::BTreeMap;

use super::Adapter;
use super::modules::{Module, Modules};
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;
use rsgen_kernels::tensor::DType;

/// The factors for one module: to `W x` comes `scale * B (A x)`.
#[derive(Debug)]
pub struct Factors {
    /// `A`, `[rank, num_inputs]`, row-major.
    pub a: Vec<f32>,
    /// `B`, `[num_outputs, rank]`, row-major.
    pub b: Vec<f32>,
    /// The rank.
    pub rank: usize,
    /// The factor of the product.
    pub scale: f32,
    /// The type that both are stored in, or float32 if they differ.
    pub dtype: DType,
}

impl Adapter {
    /// Its factors, widened, by the name of the module, such as `model.layers.0.self_attn.q_proj`.
    ///
    /// # Errors
    /// `Load` when it is damaged, or changes more than products of matrices; `Cancelled` when interrupted.
    pub fn factors(&self, interrupted: &mut dyn FnMut() -> bool) -> Result<BTreeMap<String, Factors>> {
        self.read_factors(interrupted).context(|| format!("the adapter {}", self.name))
    }

    fn read_factors(&self, interrupted: &mut dyn FnMut() -> bool) -> Result<BTreeMap<String, Factors>> {
        let Modules { modules, wholes } = Modules::of(self)?;
        if let Some(name) = wholes.keys().next() {
            return Err(must_be_merged(name, "takes the place of a whole tensor"));
        }
        self.config.check_patterns(modules.len())?;
        let mut all = BTreeMap::new();
        for (name, module) in modules {
            if interrupted() {
                return Err(Error::cancelled());
            }
            let factors = self.of_module(&name, &module)?;
            all.insert(name, factors);
        }
        Ok(all)
    }

    fn of_module(&self, name: &str, module: &Module) -> Result<Factors> {
        if module.is_embedding || module.base.is_some() {
            return Err(must_be_merged(name, "changes an embedding"));
        }
        let [a, b] = module.factors()?.ok_or_else(|| Error::internal("a module has factors or a base"))?;
        self.config.check_target(name)?;
        let rank = self.config.rank(name);
        let (a, a_shape, dtype) = self.floats(a)?;
        let (b, b_shape, of_b) = self.floats(b)?;
        match (&a_shape[..], &b_shape[..]) {
            (&[a_rank, _], &[_, b_rank]) if [a_rank, b_rank] == [rank; 2] => {}
            _ => {
                return Err(Error::load(format!(
                    "the factors of {} must have the shapes [{rank}, inputs] and [outputs, {rank}], found {a_shape:?} and \
                     {b_shape:?}; download the adapter again",
                    escape::name(name)
                )));
            }
        }
        let dtype = if dtype == of_b { dtype } else { DType::F32 };
        Ok(Factors { a, b, rank, scale: self.config.scale(name) as f32, dtype })
    }

    /// A tensor, widened, its shape, and its type.
    fn floats(&self, name: &str) -> Result<(Vec<f32>, Vec<usize>, DType)> {
        let found = self.tensor(name)?;
        let values: Vec<f32> = found.row().to_f32()?;
        if values.iter().any(|value| !value.is_finite()) {
            return Err(Error::load(format!(
                "{} must be finite, but holds NaN or infinity; download the adapter again",
                escape::name(name)
            )));
        }
        let dtype = found.encoding.dtype().unwrap_or(DType::F32);
        Ok((values, found.shape.to_vec(), dtype))
    }
}

fn must_be_merged(name: &str, what: &str) -> Error {
    Error::load(format!(
        "{} {what}, which no adapter beside the model can; open the model with it, by the option `adapter`",
        escape::name(name)
    ))
}
