//! The sliding window of config.json: how many tokens a layer sees, and which layers have one.
//!
//! The rules are those of the masks of transformers 5.24.

use serde_json::Value;

use super::fields::Fields;
use rsgen_core::error::{Error, Result};

const MAX_WINDOW: usize = 1 << 30;

/// Which layers of a family have a sliding window, where `sliding_window` is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowRule {
    /// None.
    Never,
    /// All.
    AllLayers,
    /// All, with `use_sliding_window`.
    AllLayersIfUsed,
    /// With `use_sliding_window`, those that `layer_types` names, or those from `max_window_layers` on.
    FromLayer,
    /// With `use_sliding_window`, those that `layer_types` names, or every other one below `max_window_layers`.
    EvenBelowLayer,
    /// With `use_sliding_window`, those that `layer_types` names, or those without rotary embedding.
    WithoutRope,
    /// Those that `layer_types` names, or all but one of each few layers.
    AllBut {
        /// The field that says of how many.
        field: &'static str,
        /// Whether it is the first of them; else the last.
        first: bool,
    },
    /// Those that `attention_types` names `local`; the window is `window_size`.
    Local,
}

/// The attention type of a layer, with transformers' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerType {
    /// All tokens before.
    FullAttention,
    /// The tokens of the window.
    SlidingAttention,
}

impl LayerType {
    /// The name that transformers uses: `full_attention` or `sliding_attention`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FullAttention => "full_attention",
            Self::SlidingAttention => "sliding_attention",
        }
    }
}

/// The window and the layers of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlidingWindow {
    /// The size of the window, the last token included; `None` if no layer has one.
    pub size: Option<usize>,
    /// The type of each layer, `[num_hidden_layers]`.
    pub layer_types: Vec<LayerType>,
}

impl SlidingWindow {
    /// Whether a layer has a window.
    pub fn is_sliding(&self, layer: usize) -> bool {
        self.layer_types[layer] == LayerType::SlidingAttention
    }

    /// The window of a layer, if it has one.
    pub fn of_layer(&self, layer: usize) -> Option<usize> {
        self.size.filter(|_| self.is_sliding(layer))
    }

    /// Reads the window out of a whole config.json.
    pub(super) fn read(fields: Fields<'_>, rule: WindowRule, num_layers: usize) -> Result<Self> {
        use LayerType::{FullAttention, SlidingAttention};
        let field = if rule == WindowRule::Local { "window_size" } else { "sliding_window" };
        let is_used = match rule {
            WindowRule::Never => false,
            WindowRule::AllLayers | WindowRule::AllBut { .. } | WindowRule::Local => true,
            _ => fields.is_set("use_sliding_window")?,
        };
        // Files of Qwen2-MoE say 0 for none.
        let least = usize::from(rule != WindowRule::EvenBelowLayer);
        let size = fields.integer(field, least..=MAX_WINDOW)?.filter(|&size| is_used && size > 0);
        let count =
            |name: &str, least| Ok::<_, Error>(fields.integer(name, least..=MAX_WINDOW)?.unwrap_or(0));
        let listed = match rule {
            WindowRule::Never | WindowRule::Local => None,
            WindowRule::AllLayers | WindowRule::AllLayersIfUsed => {
                if layer_types(fields, num_layers)?.is_some_and(|types| types.iter().any(|&t| t != types[0]))
                {
                    return Err(fields.wrong("layer_types", "one type for all layers in this architecture"));
                }
                None
            }
            _ => layer_types(fields, num_layers)?,
        };
        let by_index: Vec<bool> = match rule {
            _ if listed.is_some() => Vec::new(),
            WindowRule::Never => vec![false; num_layers],
            WindowRule::AllLayers | WindowRule::AllLayersIfUsed => vec![true; num_layers],
            WindowRule::FromLayer => {
                let first = count("max_window_layers", 0)?;
                (0..num_layers).map(|layer| layer >= first).collect()
            }
            WindowRule::EvenBelowLayer => {
                let end = count("max_window_layers", 0)?;
                (0..num_layers).map(|layer| layer % 2 == 0 && layer < end).collect()
            }
            WindowRule::WithoutRope => has_rope(fields, num_layers)?.iter().map(|rope| !rope).collect(),
            WindowRule::AllBut { field, first } => {
                let every = count(field, 1)?.max(1);
                let full = if first { 0 } else { every - 1 };
                (0..num_layers).map(|layer| layer % every != full).collect()
            }
            WindowRule::Local => local_layers(fields, num_layers)?,
        };
        let layer_types = match listed {
            Some(types) if size.is_none() && types.contains(&SlidingAttention) => {
                let rule =
                    "without \"sliding_attention\" where use_sliding_window or sliding_window is unset";
                return Err(fields.wrong("layer_types", rule));
            }
            Some(types) => types,
            None => {
                let slides = by_index.iter().map(|&slides| slides && size.is_some());
                slides.map(|slides| if slides { SlidingAttention } else { FullAttention }).collect()
            }
        };
        let size = size.filter(|_| layer_types.contains(&SlidingAttention));
        Ok(Self { size, layer_types })
    }
}

/// Which layers have a rotary embedding: `no_rope_layers` names them, or all but one of each
/// `no_rope_layer_interval` have one.
pub(crate) fn has_rope(fields: Fields<'_>, num_layers: usize) -> Result<Vec<bool>> {
    let Some(value) = fields.get("no_rope_layers") else {
        let every = fields.integer("no_rope_layer_interval", 1..=MAX_WINDOW)?.unwrap_or(MAX_WINDOW);
        return Ok((0..num_layers).map(|layer| (layer + 1) % every != 0).collect());
    };
    let flags: Option<Vec<bool>> =
        value.as_array().and_then(|list| list.iter().map(|flag| Some(flag.as_u64()? != 0)).collect());
    let rule =
        || fields.wrong("no_rope_layers", &format!("a list of 0 or 1 for each of the {num_layers} layers"));
    flags.filter(|flags| flags.len() == num_layers).ok_or_else(rule)
}

/// Which layers `attention_types` calls `local`: a list of patterns and how often each is repeated.
fn local_layers(fields: Fields<'_>, num_layers: usize) -> Result<Vec<bool>> {
    let mut layers = Vec::new();
    let mut read = || -> Option<()> {
        for entry in fields.get("attention_types")?.as_array()? {
            let pattern = entry.get(0)?.as_array()?;
            for _ in 0..entry.get(1)?.as_u64()?.min(num_layers as u64 + 1) {
                for kind in pattern {
                    layers.push(match kind.as_str()? {
                        "local" => true,
                        "global" => false,
                        _ => return None,
                    });
                }
            }
        }
        (layers.len() == num_layers).then_some(())
    };
    if read().is_some() {
        return Ok(layers);
    }
    let rule = format!("a list of [[\"global\" or \"local\", …], count] for {num_layers} layers");
    Err(fields.wrong("attention_types", &rule))
}

/// The field `layer_types`, if it is there.
fn layer_types(fields: Fields<'_>, num_layers: usize) -> Result<Option<Vec<LayerType>>> {
    let Some(value) = fields.get("layer_types") else { return Ok(None) };
    let name = |value: &Value| match value.as_str()? {
        // The second name is that of older files.
        "full_attention" | "attention" => Some(LayerType::FullAttention),
        "sliding_attention" => Some(LayerType::SlidingAttention),
        _ => None,
    };
    let types: Option<Vec<_>> = value.as_array().and_then(|names| names.iter().map(name).collect());
    if let Some(types) = types.filter(|types| types.len() == num_layers) {
        return Ok(Some(types));
    }
    let rule =
        format!("a list of \"full_attention\" or \"sliding_attention\" for each of the {num_layers} layers");
    Err(fields.wrong("layer_types", &rule))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::LayerType::{FullAttention as Full, SlidingAttention as Sliding};
    use super::*;

    const SOME: WindowRule = WindowRule::FromLayer;
    const ALL: WindowRule = WindowRule::AllLayers;

    /// The window that these fields give a model of three layers, with defaults for absent ones.
    fn read(rule: WindowRule, fields: &Value) -> Result<SlidingWindow> {
        let defaults = match rule {
            SOME => json!({"sliding_window": 7, "max_window_layers": 2}),
            ALL => json!({"sliding_window": 9}),
            _ => json!({}),
        };
        let mut all = defaults.as_object().unwrap().clone();
        all.extend(fields.as_object().unwrap().clone());
        SlidingWindow::read(Fields::new(&all, ""), rule, 3)
    }

    fn window(size: Option<usize>, layer_types: [LayerType; 3]) -> SlidingWindow {
        SlidingWindow { size, layer_types: layer_types.to_vec() }
    }

    #[test]
    fn a_window_of_some_layers_has_to_be_switched_on() {
        let types = ["sliding_attention", "attention", "full_attention"];
        let table = [
            (json!({"sliding_window": 5}), window(None, [Full; 3])),
            (json!({"use_sliding_window": true}), window(Some(7), [Full, Full, Sliding])),
            (json!({"use_sliding_window": true, "max_window_layers": 0}), window(Some(7), [Sliding; 3])),
            (json!({"use_sliding_window": true, "max_window_layers": 28}), window(None, [Full; 3])),
            (json!({"use_sliding_window": true, "sliding_window": null}), window(None, [Full; 3])),
            (
                json!({"use_sliding_window": true, "sliding_window": 5, "layer_types": types}),
                window(Some(5), [Sliding, Full, Full]),
            ),
        ];
        for (fields, expected) in table {
            assert_eq!(read(SOME, &fields).unwrap(), expected, "{fields}");
        }
        let window = read(SOME, &json!({"use_sliding_window": true})).unwrap();
        assert_eq!([0, 1, 2].map(|layer| window.of_layer(layer)), [None, None, Some(7)]);
    }

    #[test]
    fn a_window_of_all_layers_is_there_unless_it_is_null() {
        assert_eq!(read(ALL, &json!({})).unwrap(), window(Some(9), [Sliding; 3]));
        assert_eq!(read(ALL, &json!({"sliding_window": 4})).unwrap(), window(Some(4), [Sliding; 3]));
        assert_eq!(read(ALL, &json!({"sliding_window": null})).unwrap(), window(None, [Full; 3]));
        let not_used = json!({"sliding_window": 4});
        assert_eq!(read(WindowRule::AllLayersIfUsed, &not_used).unwrap(), window(None, [Full; 3]));
        let used = json!({"sliding_window": 4, "use_sliding_window": true});
        assert_eq!(read(WindowRule::AllLayersIfUsed, &used).unwrap(), window(Some(4), [Sliding; 3]));
        assert_eq!(read(WindowRule::Never, &json!({"sliding_window": 4})).unwrap(), window(None, [Full; 3]));
    }

    #[test]
    fn patterns_of_layers_are_those_of_transformers() {
        let every = |first| WindowRule::AllBut { field: "every", first };
        let fields = |every: usize| json!({"sliding_window": 4, "every": every});
        let used = json!({"sliding_window": 4, "use_sliding_window": true, "max_window_layers": 2});
        let no_rope = json!({"sliding_window": 4, "use_sliding_window": true, "no_rope_layers": [1, 0, 1]});
        let local = json!({"window_size": 4, "attention_types": [[["global", "local"], 1], [["global"], 1]]});
        let table = [
            (every(false), fields(2), [Sliding, Full, Sliding]),
            (every(false), fields(3), [Sliding, Sliding, Full]),
            (every(true), fields(3), [Full, Sliding, Sliding]),
            (WindowRule::EvenBelowLayer, used, [Sliding, Full, Full]),
            (WindowRule::WithoutRope, no_rope, [Full, Sliding, Full]),
            (WindowRule::Local, local, [Full, Sliding, Full]),
        ];
        for (rule, fields, expected) in table {
            assert_eq!(read(rule, &fields).unwrap(), window(Some(4), expected), "{rule:?}");
        }
        let rope = json!({"no_rope_layer_interval": 2});
        assert_eq!(has_rope(Fields::new(rope.as_object().unwrap(), ""), 3).unwrap(), [true, false, true]);
        let wrong = json!({"window_size": 4, "attention_types": [[["global"], 9]]});
        let message = read(WindowRule::Local, &wrong).unwrap_err().to_string();
        assert!(message.contains("attention_types must be a list of"), "{message}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let types = |types: Value| json!({"use_sliding_window": true, "layer_types": types});
        let mixed = json!(["full_attention", "full_attention", "sliding_attention"]);
        let table = [
            (
                SOME,
                json!({"sliding_window": 0}),
                "sliding_window must be a whole number from 1 to 1073741824, found 0",
            ),
            (ALL, json!({"sliding_window": "all"}), "sliding_window must be"),
            (SOME, json!({"max_window_layers": -1}), "max_window_layers must be a whole number from 0"),
            (SOME, json!({"use_sliding_window": 1}), "use_sliding_window must be true or false"),
            (SOME, types(json!(["full_attention"])), "for each of the 3 layers, found [\"full_attention\"]"),
            (SOME, types(json!("full_attention")), "layer_types must be a list"),
            (SOME, types(json!(["full_attention", "full_attention", "mamba"])), "layer_types must be a list"),
            (SOME, json!({"layer_types": mixed}), "without \"sliding_attention\" where use_sliding_window"),
            (ALL, json!({"layer_types": mixed}), "layer_types must be one type for all layers"),
        ];
        for (rule, fields, expected) in table {
            let message = read(rule, &fields).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
