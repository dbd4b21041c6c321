//! The functions that the fuzz targets of `fuzz/` run: they take bytes, and panic when a guarantee is broken.
//!
//! They are a library, because `cargo test` runs them on the committed inputs as well, without libFuzzer.
#![forbid(unsafe_code)]

mod answer;
mod arguments;
mod catalogue;
mod checkpoint;
mod quantized;
mod text;

pub use answer::answer;
pub use arguments::generate_arguments;
pub use catalogue::token_trie;
pub use quantized::quantization_config;
pub use text::{conversation, decoding};

use serde_json::Value;

use rsgen::engine::trace::Trace;
use rsgen::engine::{Engine, EngineOptions};
use rsgen::pictures::{Pictures, View};
use rsgen_core::error::{Error, ErrorKind};
use rsgen_core::escape;
use rsgen_core::types::TokenId;
use rsgen_generation::GenerationConfig;
use rsgen_kernels::tensor::ComputeDtype;
use rsgen_kernels::{Isa, Workers};
use rsgen_model::cache::KvDtype;
use rsgen_model::weights::{
    FileBytes, HeaderLimits, ModelConfig, ModelFiles, TensorFile, TorchFile, Weights,
};
use rsgen_model::{Loader, LoaderOptions, SUPPORTED_ARCHITECTURES};
use rsgen_text::{ChatOptions, ChatTemplate, Detokenizer, Message, Tokenizer};

/// The longest message, in characters: messages repeat no input in full.
const MAX_MESSAGE: usize = 1000;

/// The longest prompt that a chat template makes of a short conversation.
const MAX_PROMPT_LEN: usize = 32 << 20;
/// What each byte of the conversation adds: fuel for 256 bytes, and each value of it counts as 64 bytes.
const MAX_PROMPT_LEN_PER_BYTE: usize = 256 * 64;

/// A safetensors file, or the index of a sharded model.
pub fn header(data: &[u8]) {
    match TensorFile::new("model.safetensors", FileBytes::Owned(data.to_vec()), &mut HeaderLimits::default())
    {
        Ok(file) => check_tensors(&file),
        Err(error) => expect(&error, &[ErrorKind::Load]),
    }
    let shard = checkpoint::safetensors(&[("a", vec![2, 3]), ("b", vec![0])]);
    let files =
        [("model.safetensors.index.json", data), ("x.safetensors", &shard), ("y.safetensors", &shard)];
    let files = files.map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
    let files = ModelFiles::in_memory("memory", files, None);
    match Weights::open(&files) {
        Ok(weights) => {
            for name in weights.names() {
                assert!(["a", "b"].contains(&name) && weights.tensor(name).expect("a float").is_some());
            }
        }
        Err(error) => expect(&error, &[ErrorKind::Load]),
    }
}

/// A file of `torch.save`: its tensors are within it, and their memory too.
pub fn torch_file(data: &[u8]) {
    let bytes = FileBytes::Owned(data.to_vec());
    let file = match TorchFile::new("pytorch_model.bin", bytes, &mut HeaderLimits::default()) {
        Ok(file) => file,
        Err(error) => return expect(&error, &[ErrorKind::Load]),
    };
    assert!(file.data_len() <= data.len());
    for name in file.tensor_names() {
        match file.tensor(&name) {
            Ok(tensor) => {
                let tensor = tensor.expect("a listed tensor is there");
                assert_eq!(Some(tensor.bytes.len()), tensor.encoding.bytes_of(tensor.shape.iter().product()));
                assert!(tensor.bytes.len() <= data.len() && tensor.bytes.to_vec().is_ok());
            }
            Err(error) => expect(&error, &[ErrorKind::Load]),
        }
    }
}

/// A GGUF file: its texts are those of a model, and its tensors are within it.
pub fn gguf_file(data: &[u8]) {
    let files = match ModelFiles::gguf_in_memory("model.gguf", data.to_vec()) {
        Ok(files) => files,
        Err(error) => return expect(&error, &[ErrorKind::Load]),
    };
    let config = files.config().expect("a file has a configuration");
    if let Err(error) = ModelConfig::from_json(&config, SUPPORTED_ARCHITECTURES) {
        expect(&error, &[ErrorKind::Load]);
    }
    if let Err(error) = Tokenizer::from_files(|name| files.read_optional(name)) {
        expect(&error, &[ErrorKind::Load]);
    }
    let weights = Weights::open(&files).expect("a model has weights");
    for name in weights.names() {
        match weights.tensor(name) {
            Ok(tensor) => {
                let bytes = tensor.expect("a listed tensor is there").bytes;
                assert!(bytes.len() <= data.len() + 8 && bytes.to_vec().is_ok());
            }
            Err(error) => expect(&error, &[ErrorKind::Load]),
        }
    }
}

/// A trace, drawn as `rsgen show` and notebooks draw it.
pub fn trace(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let trace = match Trace::from_json(text) {
        Ok(trace) => trace,
        Err(error) => return expect(&error, &[ErrorKind::Input]),
    };
    let pictures = Pictures::of(&trace.events);
    let html = pictures.html(&[View::Probs, View::Beams, View::Drafts]);
    assert!(
        !html.contains("<script") && !html.chars().any(|letter| letter != '\n' && escape::is_hidden(letter))
    );
    for view in pictures.views() {
        let look = rsgen::pictures::text::Look { width: 80, max_lines: 100, unicode: false, colors: false };
        let text = pictures.text(view, &look);
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 80) && text.lines().count() <= 100);
    }
}

fn check_tensors(file: &TensorFile) {
    let mut taken = 0;
    for name in file.tensor_names() {
        match file.tensor(&name) {
            Ok(tensor) => {
                let tensor = tensor.expect("a listed tensor is there");
                assert_eq!(Some(tensor.bytes.len()), tensor.encoding.bytes_of(tensor.shape.iter().product()));
                taken += tensor.bytes.len();
            }
            Err(error) => expect(&error, &[ErrorKind::Load]),
        }
    }
    assert!(taken <= file.data_len(), "tensors overlap");
}

/// A config.json, and after a zero byte a `generation_config.json`. Makes a small model that fits the former,
/// and runs it.
pub fn config(data: &[u8]) {
    let (config, defaults) = split(data);
    match ModelConfig::from_json(config, SUPPORTED_ARCHITECTURES) {
        Ok(config) => run_model(&config),
        Err(error) => expect(&error, &[ErrorKind::Load]),
    }
    let Ok(defaults) = str::from_utf8(defaults) else { return };
    match GenerationConfig::from_json_file(defaults) {
        Ok(config) => {
            let written = serde_json::Value::Object(config.to_json()).to_string();
            let read = GenerationConfig::from_json_file(&written).expect("what was written can be read");
            assert_eq!(read, config);
        }
        Err(error) => expect(&error, &[ErrorKind::Load]),
    }
}

/// Loads weights of the shapes that the configuration predicts, and computes three tokens.
fn run_model(config: &ModelConfig) {
    let Some(weights) = checkpoint::llama(config) else { return };
    let workers = Workers::new(1, Isa::select().expect("an instruction set")).expect("one thread");
    let weights = Weights::from_bytes(weights).expect("a whole file");
    let cancelled = std::sync::atomic::AtomicBool::new(false);
    let options = LoaderOptions {
        workers: &workers,
        weights: None,
        is_packed: false,
        loaded: std::cell::RefCell::default(),
        compute: ComputeDtype::F32,
        progress: &|_| {},
        done: 0.into(),
        cancelled: &cancelled,
    };
    let engine = rsgen_model::load(config, &Loader::new(weights.root(), &options)).and_then(|model| {
        let options = EngineOptions {
            kv_dtype: KvDtype::F32,
            kv_cache_bytes: 1 << 22,
            prefix_caching: true,
            is_timed: false,
        };
        Engine::new(model, workers, options)
    });
    let ids: Vec<TokenId> = (0..3).map(|id| TokenId(id % config.vocab_size as u32)).collect();
    let mut logits = Vec::new();
    match engine.and_then(|engine| engine.logits(&ids, &mut || false, &mut logits)) {
        Ok(()) => {
            assert_eq!(logits.len(), 3 * config.vocab_size);
            assert!(logits.iter().all(|logit| logit.is_finite()));
        }
        Err(error) => expect(&error, &[ErrorKind::Load, ErrorKind::Capacity, ErrorKind::Numerical]),
    }
}

/// A tokenizer.json, after a zero byte a `tokenizer_config.json`, and after another one a text.
pub fn tokenizer(data: &[u8]) {
    let (tokenizer, rest) = split(data);
    let (settings, text) = split(rest);
    let settings = Some(settings).filter(|settings| !settings.is_empty());
    let tokenizer = match Tokenizer::from_bytes(tokenizer, settings, None) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return expect(&error, &[ErrorKind::Load]),
    };
    run_tokenizer(&tokenizer, &String::from_utf8_lossy(text));
}

/// The length of a text in one byte, the text, and a SentencePiece tokenizer.model.
pub fn sentencepiece(data: &[u8]) {
    let Some((&length, rest)) = data.split_first() else { return };
    let (text, model) = rest.split_at(rest.len().min(usize::from(length)));
    for settings in [None, Some(&br#"{"legacy": false}"#[..])] {
        let files = |name: &str| match name {
            "tokenizer.model" => Some(model),
            "tokenizer_config.json" => settings,
            _ => None,
        };
        match Tokenizer::from_files(|name| Ok(files(name))) {
            Ok(Some(tokenizer)) => run_tokenizer(&tokenizer, &String::from_utf8_lossy(text)),
            Ok(None) => {}
            Err(error) => return expect(&error, &[ErrorKind::Load]),
        }
    }
}

/// A chat template, and after a zero byte a conversation: an object with `messages` and what else a call may
/// say.
pub fn template(data: &[u8]) {
    let (source, conversation) = split(data);
    let (Ok(source), Ok(Value::Object(mut call))) =
        (str::from_utf8(source), serde_json::from_slice(conversation))
    else {
        return;
    };
    let template =
        match ChatTemplate::with_special_tokens(source, [("bos_token", "<s>"), ("eos_token", "</s>")]) {
            Ok(template) => template,
            Err(error) => return expect(&error, &[ErrorKind::Input]),
        };
    let mut list = |name: &str| match call.remove(name) {
        Some(Value::Array(values)) => Some(values),
        _ => None,
    };
    let messages = list("messages").unwrap_or_default().into_iter().map(Message::try_from);
    let Ok(messages) = messages.collect::<Result<Vec<_>, _>>() else { return };
    let (tools, documents) = (list("tools"), list("documents"));
    let options = ChatOptions {
        tools,
        documents,
        add_generation_prompt: call.remove("add_generation_prompt") == Some(Value::Bool(true)),
        continue_final_message: call
            .remove("continue_final_message")
            .and_then(|field| Some(field.as_str()?.to_owned())),
        chat_template_kwargs: call,
        ..ChatOptions::default()
    };
    match template.render(&messages, &options) {
        Ok(prompt) => assert!(
            prompt.len() <= MAX_PROMPT_LEN + MAX_PROMPT_LEN_PER_BYTE * data.len(),
            "{} bytes",
            prompt.len()
        ),
        Err(error) => expect(&error, &[ErrorKind::Input]),
    }
}

/// Encodes a text, and decodes what came out.
fn run_tokenizer(tokenizer: &Tokenizer, text: &str) {
    for id in 0..tokenizer.len() as u32 {
        assert!(tokenizer.token_bytes(TokenId(id)).is_some());
    }
    for add_special_tokens in [false, true] {
        let ids = match tokenizer.encode(text, add_special_tokens) {
            Ok(ids) => ids,
            Err(error) => return expect(&error, &[ErrorKind::Input]),
        };
        let whole = match tokenizer.decode(&ids, true) {
            Ok(whole) => whole,
            Err(error) => return expect(&error, &[ErrorKind::Input]),
        };
        let mut streamed = Detokenizer::new(tokenizer, &[], true);
        let mut joined: String = ids.iter().map(|&id| streamed.push(id)).collect();
        joined.push_str(&streamed.flush());
        assert_eq!(joined, whole, "a stream decodes as the whole");
    }
}

/// The parts before and after the first zero byte.
fn split(data: &[u8]) -> (&[u8], &[u8]) {
    data.iter().position(|&byte| byte == 0).map_or((data, &[]), |zero| (&data[..zero], &data[zero + 1..]))
}

/// An error must be of one of these kinds, with a message of readable length.
fn expect(error: &Error, kinds: &[ErrorKind]) {
    let message = error.to_string();
    assert!(kinds.contains(&error.kind()), "{error:?}");
    let chars = message.chars().count();
    assert!((10..=MAX_MESSAGE).contains(&chars), "{chars} characters: {error:?}");
    assert!(!message.contains(escape::is_hidden), "{error:?}");
}
