//! The tokenizers of GGUF files against transformers: each name of a pre-tokenizer, on a vocabulary whose tokens go across
//! every cut, and the vocabularies of SentencePiece by architecture.

use rsgen_model::weights::ModelFiles;
use rsgen_text::Tokenizer;
use serde_json::Value;

use crate::golden_support::{Faults, integers, list, path, text, token_ids, unequal};

/// Metadata as it is written.
#[derive(Default)]
struct Metadata {
    count: u64,
    bytes: Vec<u8>,
}

impl Metadata {
    fn string(&mut self, text: &str) {
        self.bytes.extend((text.len() as u64).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    fn key(&mut self, key: &str, types: &[u32]) {
        self.count += 1;
        self.string(key);
        self.bytes.extend(types.iter().flat_map(|id| id.to_le_bytes()));
    }

    fn text(&mut self, key: &str, text: &str) {
        self.key(key, &[8]);
        self.string(text);
    }

    fn number(&mut self, key: &str, number: u32) {
        self.key(key, &[4]);
        self.bytes.extend(number.to_le_bytes());
    }

    fn texts(&mut self, key: &str, texts: &[&str]) {
        self.key(key, &[9, 8]);
        self.bytes.extend((texts.len() as u64).to_le_bytes());
        for text in texts {
            self.string(text);
        }
    }

    fn words(&mut self, key: &str, kind: u32, words: &[u32]) {
        self.key(key, &[9, kind]);
        self.bytes.extend((words.len() as u64).to_le_bytes());
        self.bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    /// The tokenizer of a file of this metadata, whose only tensor is a small embedding.
    fn tokenizer(mut self, architecture: &str) -> Tokenizer {
        self.text("general.architecture", architecture);
        for (key, number) in [
            ("block_count", 1),
            ("context_length", 64),
            ("embedding_length", 32),
            ("attention.head_count", 4),
            ("rope.scaling.original_context_length", 64),
        ] {
            self.number(&format!("{architecture}.{key}"), number);
        }
        let mut file = b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
        file.extend(self.count.to_le_bytes());
        file.extend(&self.bytes);
        let name = "token_embd.weight";
        file.extend((name.len() as u64).to_le_bytes());
        file.extend(name.as_bytes());
        file.extend([2_u32, 32, 0, 1, 0, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
        file.resize(file.len().next_multiple_of(32) + 128, 0);
        let files = ModelFiles::gguf_in_memory("model.gguf", file).unwrap();
        Tokenizer::from_files(|name| files.read_optional(name)).unwrap().unwrap()
    }
}

fn golden() -> Value {
    serde_json::from_slice(&std::fs::read(path("tests/golden/gguf_tokenizers.json")).unwrap()).unwrap()
}

fn texts(value: &Value) -> Vec<&str> {
    list(value).iter().map(text).collect()
}

fn words(value: &Value) -> Vec<u32> {
    integers(value).into_iter().map(|number| number as u32).collect()
}

#[test]
fn each_pre_tokenizer_gives_the_ids_of_the_published_one() {
    let (golden, mut faults) = (golden(), Faults::default());
    let vocabulary = &golden["vocabulary"];
    for entry in list(&golden["byte_level"]) {
        for name in texts(&entry["names"]) {
            let mut metadata = Metadata::default();
            metadata.text("tokenizer.ggml.model", "gpt2");
            metadata.text("tokenizer.ggml.pre", name);
            metadata.texts("tokenizer.ggml.tokens", &texts(&vocabulary["tokens"]));
            metadata.words("tokenizer.ggml.token_type", 4, &words(&vocabulary["token_type"]));
            metadata.texts("tokenizer.ggml.merges", &texts(&vocabulary["merges"]));
            // Whose own class would read a tokenizer.json otherwise.
            let tokenizer = metadata.tokenizer("qwen2");
            for (text, expected) in texts(&golden["texts"]).iter().zip(list(&entry["ids"])) {
                let actual = tokenizer.encode(text, false).unwrap();
                faults.check(format!("{name}, {text:?}"), unequal(&actual, &token_ids(expected)));
            }
        }
    }
    faults.report(40 * 40);
}

#[test]
fn vocabularies_of_sentencepiece_have_the_ids_and_texts_of_transformers() {
    let (golden, mut faults) = (golden(), Faults::default());
    let pieces: Value =
        serde_json::from_slice(&std::fs::read(path("tests/golden/tokenizers/pieces.json")).unwrap()).unwrap();
    let vocab = pieces["model"]["vocab"].as_object().unwrap();
    let added = list(&pieces["added_tokens"]);
    let mut tokens = vec![""; words(&golden["pieces_types"]).len()];
    for (token, id) in vocab {
        tokens[id.as_u64().unwrap() as usize] = token;
    }
    for token in added {
        tokens[token["id"].as_u64().unwrap() as usize] = text(&token["content"]);
    }
    for architecture in ["llama", "phi3", "gemma3"] {
        let mut metadata = Metadata::default();
        metadata.text("tokenizer.ggml.model", "llama");
        metadata.texts("tokenizer.ggml.tokens", &tokens);
        metadata.words("tokenizer.ggml.token_type", 4, &words(&golden["pieces_types"]));
        let scores = list(&golden["pieces"]["scores"]).iter();
        let scores: Vec<u32> = scores.map(|score| (score.as_f64().unwrap() as f32).to_bits()).collect();
        metadata.words("tokenizer.ggml.scores", 6, &scores);
        if architecture == "gemma3" {
            metadata.key("tokenizer.ggml.add_space_prefix", &[7]);
            metadata.bytes.push(0);
        }
        let tokenizer = metadata.tokenizer(architecture);
        let expected = &golden["pieces"][architecture];
        let (ids, decoded) = (list(&expected["ids"]), texts(&expected["decoded"]));
        for ((text, ids), decoded) in texts(&golden["texts"]).iter().zip(ids).zip(decoded) {
            let actual = tokenizer.encode(text, false).unwrap();
            faults.check(format!("{architecture}, {text:?}"), unequal(&actual, &token_ids(ids)));
            let actual = tokenizer.decode(&token_ids(ids), false).unwrap();
            faults.check(format!("{architecture}, text of {text:?}"), (actual != decoded).then_some(actual));
        }
    }
    faults.report(3 * 2 * 40);
}
