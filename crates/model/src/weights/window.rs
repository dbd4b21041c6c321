//! The sliding window of config.json: how many tokens a layer sees, and which layers have one.
//!
//! The rules are those of the masks of transformers 5.23.

use serde_json::Value;

use super::fields::Fields;
use rsgen_core::error::{Error, Result};

const MAX_WINDOW: usize = 1 << 30;

/// Which layers of a family have a sliding window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowRule {
    /// None.
    Never,
    /// All, if `sliding_window` is a number.
    AllLayers {
        /// The default of an absent `sliding_window`; null is no window.
        sliding_window: Option<usize>,
    },
    /// None without `use_sliding_window`; with it those that `layer_types` names, or, where it is absent,
    /// those from `max_window_layers` on.
    SomeLayers {
        /// The default of an absent `sliding_window`; null is no window.
        sliding_window: usize,
        /// The default of an absent `max_window_layers`.
        max_window_layers: usize,
    },
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
    /// The window of a layer, if it has one.
    pub fn of_layer(&self, layer: usize) -> Option<usize> {
        self.size.filter(|_| self.layer_types[layer] == LayerType::SlidingAttention)
    }

    /// Reads the window out of a whole config.json.
    pub(super) fn read(fields: Fields<'_>, rule: WindowRule, num_layers: usize) -> Result<Self> {
        use LayerType::{FullAttention, SlidingAttention};
        let full = Self { size: None, layer_types: vec![FullAttention; num_layers] };
        let size = |default: Option<usize>| {
            let given = fields.integer("sliding_window", 1..=MAX_WINDOW)?;
            Ok::<_, Error>(given.or(default.filter(|_| !fields.has("sliding_window"))))
        };
        match rule {
            WindowRule::Never => Ok(full),
            WindowRule::AllLayers { sliding_window } => {
                if layer_types(fields, num_layers)?.is_some_and(|types| types.iter().any(|&t| t != types[0]))
                {
                    return Err(fields.wrong("layer_types", "one type for all layers in this architecture"));
                }
                let size = size(sliding_window)?;
                let all = size.map_or(FullAttention, |_| SlidingAttention);
                Ok(Self { size, layer_types: vec![all; num_layers] })
            }
            WindowRule::SomeLayers { sliding_window, max_window_layers } => {
                let used = fields.flag("use_sliding_window")?.unwrap_or(false);
                let size = size(Some(sliding_window))?.filter(|_| used);
                let first = fields.integer("max_window_layers", 0..=MAX_WINDOW)?.unwrap_or(max_window_layers);
                let by_index =
                    |layer| if size.is_some() && layer >= first { SlidingAttention } else { FullAttention };
                let layer_types = match layer_types(fields, num_layers)? {
                    Some(types) if size.is_none() && types.contains(&SlidingAttention) => {
                        let rule = "without \"sliding_attention\" where use_sliding_window or sliding_window is unset";
                        return Err(fields.wrong("layer_types", rule));
                    }
                    Some(types) => types,
                    None => (0..num_layers).map(by_index).collect(),
                };
                let size = size.filter(|_| layer_types.contains(&SlidingAttention));
                Ok(Self { size, layer_types })
            }
        }
    }
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

    const SOME: WindowRule = WindowRule::SomeLayers { sliding_window: 7, max_window_layers: 2 };
    const ALL: WindowRule = WindowRule::AllLayers { sliding_window: Some(9) };

    /// The window that these fields give a model of three layers.
    fn read(rule: WindowRule, fields: &Value) -> Result<SlidingWindow> {
        SlidingWindow::read(Fields::new(fields.as_object().unwrap(), ""), rule, 3)
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
        let none = WindowRule::AllLayers { sliding_window: None };
        assert_eq!(read(none, &json!({})).unwrap(), window(None, [Full; 3]));
        assert_eq!(read(WindowRule::Never, &json!({"sliding_window": 4})).unwrap(), window(None, [Full; 3]));
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
