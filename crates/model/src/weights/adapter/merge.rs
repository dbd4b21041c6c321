//! Which tensor of a model gets which parts of an adapter.
//!
//! Where embedding and head are one matrix, PEFT changes both when it changes one: the products of the
//! embedding come first, then those of the head. A module that is saved as a whole is a copy, so it ends
//! that.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Adapter;
use super::modules::{Module, Modules, weight};
use super::tensor::{AdaptedTensor, Product};
use crate::weights::safetensors::TensorView;
use crate::weights::shards::Weights;
use crate::weights::store::Store;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;
use rsgen_core::memory;
use rsgen_kernels::Isa;
use rsgen_kernels::tensor::{DType, StoredBytes};

/// The bytes of embedding and head that are compared at a time.
const COMPARED: usize = 1 << 20;

/// Where a tensor comes from before products are added.
struct Origin {
    store: Arc<Store>,
    name: String,
}

impl Weights {
    /// Merges an adapter into these weights. `is_tied` says whether the model has one matrix for embedding
    /// and head. Returns the size of the vocabulary if the adapter holds them with another one.
    ///
    /// # Errors
    /// `Load` when the adapter is damaged or belongs to another model, or the weights are packed.
    pub fn merge(&mut self, adapter: &Adapter, is_tied: bool, isa: Isa) -> Result<Option<usize>> {
        if let Some(packed) = self.packed()? {
            return Err(Error::load(format!(
                "an adapter must be merged into the weights before they are packed, but the model is packed as {packed}; \
                 open the model that it was packed from, or pack that with this adapter"
            )));
        }
        Merge::new(self, adapter, is_tied, isa)?.run().context(|| format!("the adapter {}", adapter.name))
    }
}

struct Merge<'a> {
    weights: &'a mut Weights,
    adapter: &'a Adapter,
    isa: Isa,
    modules: BTreeMap<String, Module>,
    /// Tensors in place of the model's own: the model's name and the adapter's.
    wholes: BTreeMap<String, String>,
    is_tied: bool,
    /// The modules that are one matrix in a tied model.
    embedding: String,
    head: String,
    /// The rows of embedding and head, where they are not those of the model.
    resized: Option<usize>,
}

impl<'a> Merge<'a> {
    fn new(weights: &'a mut Weights, adapter: &'a Adapter, is_tied: bool, isa: Isa) -> Result<Self> {
        let Modules { modules, wholes } = Modules::of(adapter)?;
        let (embedding, head) = (weights.family.embedding(), weights.family.head.to_owned());
        Ok(Self { weights, adapter, isa, modules, wholes, is_tied, embedding, head, resized: None })
    }

    fn run(mut self) -> Result<Option<usize>> {
        self.adapter.config.check_patterns(self.modules.len())?;
        self.resized = self.resize()?;
        if self.is_tied {
            self.merge_tied()?;
        }
        for (name, saved) in std::mem::take(&mut self.wholes) {
            let origin = self.saved(saved);
            self.put(&name, &name, Some(origin), Vec::new())?;
        }
        for (module, mut parts) in std::mem::take(&mut self.modules) {
            let name = weight(&module);
            let base = parts.base.take().map(|saved| self.saved(saved));
            let products = self.products(&[(&module, &parts)], &name)?;
            self.put(&name, &name, base, products)?;
        }
        for name in [weight(&self.embedding), weight(&self.head)] {
            if self.resized.is_some() && self.weights.store(&name).is_some() {
                self.put(&name, &name, None, Vec::new())?;
            }
        }
        Ok(self.resized)
    }

    /// The rows of embedding and head if the adapter holds them as a whole with other rows than the model:
    /// they were resized before it was trained.
    fn resize(&self) -> Result<Option<usize>> {
        let saved = |module: &str| {
            let whole = self.wholes.get(&weight(module));
            whole.or_else(|| self.modules.get(module).and_then(|parts| parts.base.as_ref()))
        };
        let modules @ [embedding, head] = [&*self.embedding, &*self.head];
        let own = if self.weights.contains(&weight(embedding)) { embedding } else { head };
        let Some(&[num_rows, num_columns]) = self.base(&weight(own)).ok().map(|(_, stored)| stored.shape)
        else {
            return Ok(None);
        };
        let rows = modules.map(|module| {
            let Some(name) = saved(module) else { return Ok(None) };
            match self.adapter.tensor(name)?.shape {
                &[rows, columns] if columns == num_columns => Ok(Some(rows)),
                found => Err(self.unfit(name, &weight(module), &[num_rows, num_columns], found)),
            }
        });
        let [of_embedding, of_head] = rows;
        let found = [of_embedding?, of_head?];
        let Some(rows) = found.into_iter().flatten().find(|&rows| rows != num_rows) else {
            return Ok(None);
        };
        let is_copy = modules.iter().any(|module| self.adapter.config.saves(module));
        let one_is_enough = self.is_tied && !is_copy && self.is_one(&weight(embedding), &weight(head))?;
        // Of fewer rows the model's own are the first ones.
        let is_whole = rows < num_rows || one_is_enough || found.iter().all(Option::is_some);
        if is_whole && found.into_iter().flatten().all(|found| found == rows) {
            return Ok(Some(rows));
        }
        Err(Error::load(format!(
            "it was trained with a vocabulary of {rows} in place of {num_rows}, but does not hold both {embedding} and {head} with \
             that size; merge it with PEFT, by `merge_and_unload()` and `save_pretrained(folder)`, and open that folder"
        )))
    }

    /// The shape that the model's tensor of this name has with the adapter.
    fn shape(&self, name: &str, stored: &[usize]) -> Vec<usize> {
        let is_resized = name == weight(&self.embedding) || name == weight(&self.head);
        match (self.resized, stored) {
            (Some(rows), &[_, columns]) if is_resized => vec![rows, columns],
            _ => stored.to_vec(),
        }
    }

    /// Embedding and head of a model that has one matrix for both, if the adapter changes one of them.
    fn merge_tied(&mut self) -> Result<()> {
        let modules = [self.embedding.clone(), self.head.clone()];
        let [embedding, head] = modules.each_ref().map(|module| weight(module));
        let is_changed = modules.iter().any(|module| self.modules.contains_key(module))
            || [&embedding, &head].into_iter().any(|name| self.wholes.contains_key(name));
        if !is_changed || !self.is_one(&embedding, &head)? {
            return Ok(());
        }
        if self.adapter.config.ensure_weight_tying {
            return Err(Error::load(
                "ensure_weight_tying must be false where embedding and head are one matrix and the adapter changes it, found \
                 true, which is not supported; merge it with PEFT, by `merge_and_unload()` and `save_pretrained(folder)`, and \
                 open that folder",
            ));
        }
        // Some checkpoints hold the head alone.
        let shared = if self.weights.contains(&embedding) { embedding.clone() } else { head.clone() };
        let is_copied =
            |module: &str, name: &String| self.wholes.contains_key(name) && self.adapter.config.saves(module);
        if is_copied(&modules[0], &embedding) || is_copied(&modules[1], &head) {
            let mut made = Vec::new();
            for (module, name) in modules.iter().zip([embedding, head]) {
                let parts = self.modules.remove(module).unwrap_or_default();
                let saved = self.wholes.remove(&name).or_else(|| parts.base.clone());
                let products = self.products(&[(module, &parts)], &shared)?;
                let origin = saved.map(|saved| self.saved(saved));
                made.push((self.make(&shared, origin, products)?, name));
            }
            for (tensor, name) in made {
                self.weights.adapt(name, tensor);
            }
            return Ok(());
        }
        let [first, second] =
            modules.each_ref().map(|module| self.modules.remove(module).unwrap_or_default());
        let wholes = [&embedding, &head].map(|name| self.wholes.remove(name));
        let [whole_first, whole_second] = wholes;
        // The head is loaded last.
        let saved = second.base.clone().or(whole_second).or(first.base.clone()).or(whole_first);
        let origin = saved.map(|saved| self.saved(saved));
        let products = self.products(&[(&modules[0], &first), (&modules[1], &second)], &shared)?;
        let tensor = self.make(&shared, origin, products)?;
        if shared == embedding {
            self.weights.leave_out(&head);
        }
        self.weights.adapt(shared, tensor);
        Ok(())
    }

    /// Whether embedding and head are one matrix: one of them alone is there, or they are equal.
    fn is_one(&self, embedding: &str, head: &str) -> Result<bool> {
        let (Some(one), Some(other)) = (self.weights.tensor(embedding)?, self.weights.tensor(head)?) else {
            return Ok(true);
        };
        Ok(one.encoding == other.encoding && one.shape == other.shape && are_equal(one.bytes, other.bytes)?)
    }

    fn saved(&self, name: String) -> Origin {
        Origin { store: Arc::clone(&self.adapter.store), name }
    }

    /// Puts a tensor, made of the model's `base`, in the place of `name`.
    fn put(&mut self, name: &str, base: &str, origin: Option<Origin>, products: Vec<Product>) -> Result<()> {
        let tensor = self.make(base, origin, products)?;
        self.weights.adapt(name.to_owned(), tensor);
        Ok(())
    }

    /// The tensor of `origin`, or else the model's `base`, with products added; in the type and shape of
    /// `base`.
    fn make(&self, base: &str, origin: Option<Origin>, products: Vec<Product>) -> Result<AdaptedTensor> {
        let (store, stored) = self.base(base)?;
        let (own, is_transposed) = (stored.name.to_owned(), stored.is_transposed);
        // Products added to blocks are no blocks.
        let (dtype, shape) = (stored.encoding.dtype().unwrap_or(DType::F32), self.shape(base, stored.shape));
        let Origin { store, name } = match origin {
            None => Origin { store, name: own },
            Some(origin) => {
                let found = self.adapter.tensor(&origin.name)?;
                if found.shape != shape {
                    return Err(self.unfit(&origin.name, base, &shape, found.shape));
                }
                origin
            }
        };
        Ok(AdaptedTensor { store, stored_as: name, dtype, shape, is_transposed, products, isa: self.isa })
    }

    /// A tensor of the model before it is adapted.
    fn base(&self, name: &str) -> Result<(Arc<Store>, TensorView<'_>)> {
        let found = self.weights.store(name).map(Arc::clone).zip(self.weights.tensor(name)?);
        found.ok_or_else(|| {
            Error::load(format!(
                "it changes {}, which the model does not have; it belongs to another model{}",
                escape::name(name),
                self.trained_for()
            ))
        })
    }

    fn trained_for(&self) -> String {
        let base = self.adapter.config.base_model.as_deref();
        base.map(|base| format!(", {}", escape::name(base))).unwrap_or_default()
    }

    fn unfit(&self, name: &str, base: &str, expected: &[usize], found: &[usize]) -> Error {
        let (name, base) = (escape::name(name), escape::name(base));
        Error::load(format!(
            "{name} must have the shape {expected:?} for {base}, found {found:?}; it belongs to another model{}",
            self.trained_for()
        ))
    }

    /// The products of modules, in order, for a matrix of the shape that the model's `base` has.
    fn products(&self, modules: &[(&str, &Module)], base: &str) -> Result<Vec<Product>> {
        let mut products = Vec::new();
        for &(module, parts) in modules {
            let Some([a, b]) = parts.factors()? else { continue };
            let (_, stored) = self.base(base)?;
            self.adapter.config.check_target(module)?;
            let &[num_rows, num_columns] = &*self.shape(base, stored.shape) else {
                return Err(Error::load(format!(
                    "{} must be a factor for a matrix, but {} has the shape {:?}; it belongs to another model{}",
                    escape::name(a),
                    escape::name(base),
                    stored.shape,
                    self.trained_for()
                )));
            };
            let config = &self.adapter.config;
            let rank = config.rank(module);
            let scale = config.scale(module) as f32;
            // PEFT goes by the kind of the module, and not by `fan_in_fan_out`.
            let is_transposed =
                parts.is_embedding || self.weights.family.is_transposed(module) && !stored.is_transposed;
            let (a_columns, b_rows) =
                if is_transposed { (num_rows, num_columns) } else { (num_columns, num_rows) };
            let a = self.factor(a, base, [rank, a_columns])?;
            let b = self.factor(b, base, [b_rows, rank])?;
            let (left, right) =
                if is_transposed { (transposed(&a, a_columns)?, transposed(&b, rank)?) } else { (b, a) };
            products.push(Product { left, right, rank, num_columns, scale });
        }
        Ok(products)
    }

    /// A factor, widened.
    fn factor(&self, name: &str, base: &str, shape: [usize; 2]) -> Result<Vec<f32>> {
        let found = self.adapter.tensor(name)?;
        if found.shape != shape {
            return Err(self.unfit(name, base, &shape, found.shape));
        }
        found.row().to_f32()
    }
}

/// A matrix of `num_columns` columns, row-major, with its axes swapped.
fn transposed(matrix: &[f32], num_columns: usize) -> Result<Vec<f32>> {
    let mut out = Vec::new();
    memory::reserve(&mut out, matrix.len(), "weights")?;
    for column in 0..num_columns {
        out.extend(matrix[column..].iter().step_by(num_columns));
    }
    Ok(out)
}

fn are_equal(one: StoredBytes<'_>, other: StoredBytes<'_>) -> Result<bool> {
    if one.is_same(&other) {
        return Ok(true);
    }
    for start in (0..one.len()).step_by(COMPARED) {
        let range = start..one.len().min(start + COMPARED);
        if one.part(range.clone()).to_vec()? != other.part(range).to_vec()? {
            return Ok(false);
        }
    }
    Ok(true)
}
