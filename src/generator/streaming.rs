//! The limits of attention sinks, with which a text continues past the context.

use super::Generator;

impl Generator {
    /// The most tokens that `window` may keep in the cache: a text of so many tokens is computed like any
    /// other. Longer ones are beyond the model's context, or a layer sees a part of them, or longrope gives
    /// them other factors. None where a token cannot move to another position.
    pub(super) fn max_window(&self) -> usize {
        let config = self.config();
        if !self.engine().model().can_shift() {
            return 0;
        }
        let windows = (0..config.num_hidden_layers).filter_map(|layer| config.window.of_layer(layer));
        let longrope = self.engine().model().longrope_threshold();
        windows.chain(longrope).fold(config.max_position_embeddings, usize::min)
    }
}
