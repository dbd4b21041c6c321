//! The names of a family's tensors in a model with a head, and the forms that files have of them.

/// What a family calls the parts of a model outside its layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorNames {
    /// The scope of the model without its head; may have two parts.
    pub base: &'static str,
    /// The embedding, in the base.
    pub embedding: &'static str,
    /// The head, beside the base.
    pub head: &'static str,
    /// The list of layers, in the base.
    pub layers: &'static str,
    /// Whether the matrices of layers are stored `[num_inputs, num_outputs]`.
    pub transposed_layers: bool,
}

/// The scopes of a text decoder in a wrapper, as transformers 4 and 5 write them.
const WRAPPED: [&str; 2] = ["language_model.model.", "model.language_model."];
/// What every head is called in transformers 5.
const HEAD: &str = "lm_head";

impl TensorNames {
    /// Those of llama.
    pub const LLAMA: Self = Self {
        base: "model",
        embedding: "embed_tokens",
        head: HEAD,
        layers: "layers",
        transposed_layers: false,
    };

    /// The module of the embedding.
    pub(super) fn embedding(&self) -> String {
        format!("{}.{}", self.base, self.embedding)
    }

    /// Whether the matrix of a module, or one of its tensors, is stored `[num_inputs, num_outputs]`.
    pub(super) fn is_transposed(&self, module: &str) -> bool {
        let within = strip_scope(module, self.base).and_then(|rest| strip_scope(rest, self.layers));
        self.transposed_layers && within.is_some()
    }

    /// The other names that a tensor may have. As in transformers, a tensor of a base model may lack the prefix
    /// that its model with a head has, or have that of a wrapper, and a head may have the base model's.
    pub(crate) fn forms(&self, name: &str) -> Vec<String> {
        let Self { base, head, .. } = *self;
        let scopes = [base, "language_model"].into_iter();
        let bare = scopes.filter_map(|scope| strip_scope(name, scope)).find(|bare| is_head(bare, head));
        if let Some(rest) = [head, HEAD].iter().find_map(|head| strip_scope(bare.unwrap_or(name), head)) {
            let names = [
                head.to_owned(),
                HEAD.to_owned(),
                format!("{base}.{head}"),
                format!("language_model.{HEAD}"),
            ];
            return names.into_iter().map(|name| format!("{name}.{rest}")).collect();
        }
        let wrapped = WRAPPED.iter().find_map(|scope| name.strip_prefix(scope));
        let Some(rest) = wrapped.or_else(|| strip_scope(name, base)) else { return Vec::new() };
        let last = base.rsplit_once('.').map_or(base, |(_, last)| last);
        let scopes = [format!("{base}."), String::new(), format!("{last}.")];
        let scopes = scopes.into_iter().chain(WRAPPED.map(str::to_owned));
        scopes.map(|scope| format!("{scope}{rest}")).collect()
    }
}

fn strip_scope<'a>(name: &'a str, scope: &str) -> Option<&'a str> {
    name.strip_prefix(scope)?.strip_prefix('.')
}

fn is_head(name: &str, head: &str) -> bool {
    strip_scope(name, head).or_else(|| strip_scope(name, HEAD)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPT: TensorNames = TensorNames { base: "model.decoder", ..TensorNames::LLAMA };
    const NEOX: TensorNames =
        TensorNames { base: "gpt_neox", embedding: "embed_in", head: "embed_out", ..TensorNames::LLAMA };

    #[test]
    fn a_tensor_is_found_by_the_names_of_every_writer() {
        let layer = "layers.0.w.weight";
        let wrapped = WRAPPED.map(|scope| format!("{scope}{layer}"));
        for (names, forms) in [
            (
                TensorNames::LLAMA,
                [format!("model.{layer}"), layer.to_owned()].into_iter().chain(wrapped).collect(),
            ),
            (OPT, vec![format!("model.decoder.{layer}"), format!("decoder.{layer}"), layer.to_owned()]),
            (NEOX, vec![format!("gpt_neox.{layer}"), layer.to_owned()]),
            (NEOX, vec!["embed_out.weight".to_owned(), "lm_head.weight".to_owned()]),
            (
                TensorNames::LLAMA,
                vec!["lm_head.weight".to_owned(), "language_model.lm_head.weight".to_owned()],
            ),
        ] {
            for form in &forms {
                assert!(names.forms(&forms[0]).contains(form), "{form}: {:?}", names.forms(&forms[0]));
            }
        }
        let head = "model.lm_head.weight".to_owned();
        assert!(TensorNames::LLAMA.forms("lm_head.weight").contains(&head));
        assert!(TensorNames::LLAMA.forms(&wrapped_name()).contains(&"model.norm.weight".to_owned()));
        assert_eq!(TensorNames::LLAMA.forms("transformer.h.0.w.weight"), Vec::<String>::new());
    }

    fn wrapped_name() -> String {
        "model.language_model.norm.weight".to_owned()
    }
}
