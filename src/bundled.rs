//! The models that come with the crate, in the program: a story model, and a smaller one to draft for it.

use rsgen_model::weights::ModelFiles;

/// The files of a model of the package.
macro_rules! files {
    ($model:literal) => {
        files!($model:
            "config.json", "generation_config.json", "model.safetensors", "special_tokens_map.json", "tokenizer.json",
            "tokenizer_config.json")
    };
    ($model:literal: $($file:literal),*) => {
        ModelFiles::embedded(
            $model,
            &[$(($file, include_bytes!(concat!("../python/rsgen/models/", $model, "/", $file)))),*],
        )
    };
}

/// The story model.
pub(crate) fn story() -> ModelFiles {
    files!("story-3m")
}

/// The smaller model, to draft for the story model.
pub(crate) fn draft() -> ModelFiles {
    files!("story-draft")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_embedded_model_equals_the_folder() {
        let embedded = story();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");
        let folder = ModelFiles::folder(path).unwrap();
        for file in fs::read_dir(path).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            if name != "README.md" {
                let bytes = |files: &ModelFiles| {
                    files.weight_file(&name).unwrap().unwrap().stored().to_vec().unwrap()
                };
                assert_eq!(bytes(&embedded), bytes(&folder), "{name}");
            }
        }
        assert_eq!(embedded.path(), None);
    }
}
