//! Several models in one server: which one answers, when each is loaded and unloaded, and what goes wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;
use crate::engine::Interrupt;
use crate::generator::GeneratorOptions;
use crate::serve::hosts::Rule;
use crate::serve::models::Models;
use crate::serve::routes;
use crate::serve::state::{Phase, ServerState};
use crate::serve::{ModelPath, ServedModel};
use rsgen_core::error::{Error, Result};

const LATEST: Duration = Duration::from_secs(30);
const COMPLETIONS: &str = "/v1/completions";

/// A server of several models, on a single thread: a load that blocked it would block every request.
struct Several {
    runtime: Runtime,
    models: Arc<Models>,
    router: Router,
}

impl Several {
    fn new(models: Vec<ServedModel>, options: ServeOptions) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let models = Models::new(Arc::new(ServerState::new(options, Rule::Any)), models).unwrap();
        let router = routes::of_server(&models);
        runtime.spawn(Arc::clone(&models).unload_idle());
        Self { runtime, models, router }
    }

    fn answer(&self, method: &str, path: &str, body: &Value) -> impl Future<Output = (u16, String)> + use<> {
        let service = TowerToHyperService::new(self.router.clone());
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(Body::from(body.to_string())).unwrap();
        async move {
            let (parts, body) = service.call(request).await.unwrap().into_parts();
            let text = to_bytes(body, 64 << 20).await.unwrap();
            (parts.status.as_u16(), String::from_utf8(text.to_vec()).unwrap())
        }
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.runtime.block_on(self.answer("POST", path, body));
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    fn get(&self, path: &str) -> Value {
        let (status, text) = self.runtime.block_on(self.answer("GET", path, &Value::Null));
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }

    fn complete(&self, model: &str) -> (u16, Value) {
        self.post(COMPLETIONS, &prompt(model))
    }

    /// The names of the models that are loaded.
    fn loaded(&self) -> String {
        let all = self.models.all();
        let loaded = all.iter().filter(|(_, status)| status.app().is_some());
        loaded.map(|(entry, _)| &*entry.name).collect::<Vec<_>>().join(" ")
    }

    fn pause(&self, milliseconds: u64) {
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(milliseconds)).await });
    }

    fn wait_until_loaded_are(&self, names: &str) {
        let begin = Instant::now();
        while self.loaded() != names {
            assert!(begin.elapsed() < LATEST, "{} are loaded", self.loaded());
            self.pause(2);
        }
    }
}

fn prompt(model: &str) -> Value {
    json!({ "model": model, "prompt": PROMPT, "max_tokens": 4, "temperature": 0 })
}

fn story() -> Result<Generator> {
    Generator::bundled_with(&GeneratorOptions { num_threads: Some(1), ..GeneratorOptions::default() })
}

fn draft() -> Result<Generator> {
    let options = GeneratorOptions { num_threads: Some(1), ..GeneratorOptions::default() };
    Generator::from_files(&crate::bundled::draft(), &options, &false.into())
}

fn model(
    name: &str,
    open: impl Fn(&mut Interrupt<'_>) -> Result<Generator> + Send + Sync + 'static,
) -> ServedModel {
    ServedModel::new(name, 1000, open)
}

/// Models of these names, none of them loaded.
fn stories(names: &[&str]) -> Vec<ServedModel> {
    names.iter().map(|name| model(name, |_| story())).collect()
}

#[test]
fn the_name_in_a_request_chooses_its_model_on_every_route() {
    let adapted = || {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/adapters/story");
        let generator = story()?;
        generator.load_adapter(folder, "other", None, &mut || false).map(|()| generator)
    };
    let small = model("small", |_| draft()).with_loaded(draft().unwrap());
    let big = model("big", move |_| adapted()).with_adapters(vec!["other".to_owned()]);
    let server = Several::new(vec![small, big], ServeOptions::default());
    let text = |generator: &Generator| {
        let config = GenerationConfig::new().max_new_tokens(24);
        generator.generate(vec![PROMPT], &config).unwrap().text().to_owned()
    };
    let [of_small, of_big] = [draft(), story()].map(|generator| text(&generator.unwrap()));
    assert_ne!(of_small, of_big);
    for (name, id, expected) in [
        (json!(null), "small", Some(&of_small)),
        (json!("dummy"), "small", Some(&of_small)),
        (json!("small"), "small", Some(&of_small)),
        (json!("big"), "big", Some(&of_big)),
        (json!("big:other"), "big:other", None),
        (json!("other"), "big:other", None),
    ] {
        let (status, answer) =
            server.post(COMPLETIONS, &with(&prompt(""), json!({ "model": name, "max_tokens": 24 })));
        assert_eq!((status, &answer["model"]), (200, &json!(id)), "{answer}");
        assert!(expected.is_none_or(|expected| answer["choices"][0]["text"] == **expected), "{answer}");
    }
    let hello = json!([{ "role": "user", "content": "Hello" }]);
    let short = json!({ "num_predict": 2 });
    for (path, body, id) in [
        ("/v1/chat/completions", json!({ "messages": hello, "max_tokens": 2 }), "/model"),
        ("/v1/responses", json!({ "input": "Hello", "max_output_tokens": 2 }), "/model"),
        ("/v1/messages", json!({ "messages": hello, "max_tokens": 2 }), "/model"),
        ("/v1/messages/count_tokens", json!({ "messages": hello }), ""),
        ("/v1/embeddings", json!({ "input": "Hello" }), "/model"),
        ("/v1/score", json!({ "text_1": "a", "text_2": "b" }), "/model"),
        ("/v1/rerank", json!({ "query": "a", "documents": ["b"] }), "/model"),
        ("/api/chat", json!({ "messages": hello, "stream": false, "options": short }), "/model"),
        ("/api/generate", json!({ "prompt": "Hello", "stream": false, "options": short }), "/model"),
        ("/api/embed", json!({ "input": "Hello" }), "/model"),
        ("/api/show", json!({}), "/model_info/general.basename"),
        ("/rsgen/v1/generate", json!({ "prompt": "Hello", "max_new_tokens": 2, "stream": false }), "/model"),
        ("/tokenize", json!({ "prompt": "Hello" }), ""),
        ("/detokenize", json!({ "tokens": [5] }), ""),
        ("/apply-template", json!({ "messages": hello }), ""),
    ] {
        for name in ["small", "big"] {
            let (status, answer) = server.post(path, &with(&body, json!({ "model": name })));
            let found = answer.pointer(id).filter(|_| !id.is_empty());
            assert!(status == 200 && found.is_none_or(|found| found == name), "{path} {status}: {answer}");
        }
        let (status, answer) = server.post(path, &with(&body, json!({ "model": "none" })));
        let message = match path {
            _ if path.starts_with("/api/") => &answer["error"],
            _ if path.starts_with("/v1/messages") => {
                assert_eq!(answer["error"]["type"], "not_found_error");
                &answer["error"]["message"]
            }
            _ => {
                assert_eq!(answer["error"]["code"], "model_not_found", "{path}: {answer}");
                &answer["error"]["message"]
            }
        };
        let message = message.as_str().unwrap_or_default();
        let names_all = ["\"small\"", "\"big\"", "\"big:other\""].iter().all(|name| message.contains(name));
        assert!(status == 404 && names_all, "{path} {status}: {answer}");
    }
    let (status, answer) =
        server.post("/translate", &json!({ "model": "none", "q": "a", "source": "a", "target": "b" }));
    assert!(status == 404 && answer["error"].as_str().unwrap().contains("\"big\""), "{answer}");
    let (status, answer) = server.complete("small:none");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 404 && message.contains("\"small\", \"big\""), "{answer}");
    let (status, _) = server.post("/api/show", &json!({ "name": "big:latest" }));
    assert_eq!(status, 200);
    let info = |path: &str| server.get(path)["vocab_size"].clone();
    assert_eq!(info("/tokenizer_info"), info("/tokenizer_info?model=small"));
    assert_eq!(server.runtime.block_on(server.answer("GET", "/tokenizer_info?model=x", &Value::Null)).0, 404);
}

#[test]
fn lists_tell_which_models_are_loaded() {
    let mut models = stories(&["a", "b"]);
    models[1] = models[1].clone().with_adapters(vec!["c".to_owned()]);
    let server = Several::new(models, ServeOptions::default());
    let states = |server: &Several| {
        let all = server.get("/v1/models");
        let all = all["data"].as_array().unwrap().clone();
        all.iter()
            .map(|one| format!("{} {}", one["id"], one["status"]["value"]))
            .collect::<Vec<_>>()
            .join(", ")
    };
    assert_eq!(states(&server), r#""a" "unloaded", "b" "unloaded", "b:c" "unloaded""#);
    assert_eq!(server.get("/api/ps"), json!({ "models": [] }));
    assert_eq!(server.get("/api/tags")["models"].as_array().unwrap().len(), 3);
    assert_eq!(server.get("/v1/models/b")["meta"], json!({ "weight_bytes": 1000 }));
    assert_eq!(server.get("/v1/models/c")["id"], "b:c");
    assert_eq!(server.loaded(), "", "lists load none");
    assert_eq!(server.complete("a").0, 200);
    assert_eq!(states(&server), r#""a" "loaded", "b" "unloaded", "b:c" "unloaded""#);
    let running = server.get("/api/ps");
    assert_eq!(
        (&running["models"][0]["name"], running["models"].as_array().unwrap().len()),
        (&json!("a"), 1)
    );
    assert!(running["models"][0]["expires_at"].as_str().unwrap() > "2100", "{running}");
    let health = server.get("/health");
    assert_eq!(health["models"], json!({ "a": "loaded", "b": "unloaded" }), "{health}");
    let metrics = server.get("/metrics");
    for line in [
        "rsgen_model_loaded{model_name=\"a\"} 1\n",
        "rsgen_model_loaded{model_name=\"b\"} 0\n",
        "rsgen_model_loads_total{model_name=\"a\"} 1\n",
        "rsgen_kv_cache_usage_ratio{model_name=\"a\"} 0\n",
    ] {
        assert!(metrics.as_str().unwrap().contains(line), "{line} in {metrics}");
    }
}

#[test]
fn requests_for_an_unloaded_model_load_it_once_and_block_no_others() {
    let (go, wait) = mpsc::channel::<()>();
    let (wait, loads) = (std::sync::Mutex::new(wait), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&loads);
    let slow = model("slow", move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        wait.lock().unwrap().recv_timeout(LATEST).unwrap();
        story()
    });
    let quick = model("quick", |_| story()).with_loaded(story().unwrap());
    let server = Several::new(vec![quick, slow], ServeOptions::default());
    let waiting: Vec<_> =
        (0..5).map(|_| server.runtime.spawn(server.answer("POST", COMPLETIONS, &prompt("slow")))).collect();
    let left = server.runtime.spawn(server.answer("POST", COMPLETIONS, &prompt("slow")));
    assert_eq!(server.complete("quick").0, 200);
    assert_eq!(server.get("/health")["models"], json!({ "quick": "loaded", "slow": "loading" }));
    left.abort();
    go.send(()).unwrap();
    for answer in waiting {
        assert_eq!(server.runtime.block_on(answer).unwrap().0, 200);
    }
    assert_eq!((loads.load(Ordering::Relaxed), &*server.loaded()), (1, "quick slow"));
}

#[test]
fn a_load_goes_on_when_all_who_wait_for_it_leave() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let slow = model("slow", move |_| {
        wait.lock().unwrap().recv_timeout(LATEST).unwrap();
        story()
    });
    let server = Several::new([vec![slow], stories(&["b"])].concat(), ServeOptions::default());
    let left = server.runtime.spawn(server.answer("POST", COMPLETIONS, &prompt("slow")));
    server.pause(20);
    left.abort();
    server.pause(5);
    assert_eq!(server.models.state.places.num_running(), 0);
    go.send(()).unwrap();
    server.wait_until_loaded_are("slow");
}

#[test]
fn the_model_that_has_not_been_used_for_longest_makes_room() {
    for options in [
        ServeOptions { models_max: Some(2), ..ServeOptions::default() },
        ServeOptions { models_memory: Some(2999), ..ServeOptions::default() },
    ] {
        let server = Several::new(stories(&["a", "b", "c"]), options);
        for (name, loaded) in
            [("a", "a"), ("b", "a b"), ("a", "a b"), ("c", "a c"), ("b", "b c"), ("c", "b c")]
        {
            assert_eq!((server.complete(name).0, &*server.loaded()), (200, loaded), "{name}");
        }
        let metrics = server.get("/metrics").as_str().unwrap().to_owned();
        assert!(metrics.contains("rsgen_model_unloads_total{model_name=\"b\"} 1\n"), "{metrics}");
    }
}

#[test]
fn a_model_in_use_stays_and_others_wait_for_its_end() {
    let impatient = Duration::from_millis(100);
    let options =
        || ServeOptions { models_max: Some(1), queue_timeout: impatient, ..ServeOptions::default() };
    let server = Several::new(stories(&["a", "b"]), options());
    let in_use = server.runtime.block_on(server.models.named(Some("a"))).unwrap();
    let (status, answer) = server.complete("b");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 503 && message.contains("\"b\"") && message.contains("in use"), "{answer}");
    assert_eq!((server.complete("a").0, &*server.loaded()), (200, "a"));
    drop(in_use);
    assert_eq!((server.complete("b").0, &*server.loaded()), (200, "b"));

    let patient = ServeOptions { queue_timeout: LATEST, ..options() };
    let server = Several::new(stories(&["a", "b"]), patient);
    let in_use = server.runtime.block_on(server.models.named(Some("a"))).unwrap();
    let waiting = server.runtime.spawn(server.answer("POST", COMPLETIONS, &prompt("b")));
    server.pause(50);
    assert_eq!((waiting.is_finished(), &*server.loaded()), (false, "a"));
    drop(in_use);
    assert_eq!(server.runtime.block_on(waiting).unwrap().0, 200);
    assert_eq!(server.loaded(), "b");
}

#[test]
fn a_load_that_waits_for_room_delays_no_other_load() {
    let sized = |name: &str, bytes| ServedModel::new(name, bytes, |_| story());
    let models = vec![sized("a", 1000), sized("big", 2500), sized("c", 1000)];
    let options =
        ServeOptions { models_memory: Some(3000), queue_timeout: LATEST, ..ServeOptions::default() };
    let server = Several::new(models, options);
    let in_use = server.runtime.block_on(server.models.named(Some("a"))).unwrap();
    let waiting = server.runtime.spawn(server.answer("POST", COMPLETIONS, &prompt("big")));
    server.pause(50);
    assert_eq!((server.complete("c").0, &*server.loaded()), (200, "a c"));
    assert!(!waiting.is_finished());
    drop(in_use);
    assert_eq!(server.runtime.block_on(waiting).unwrap().0, 200);
    assert_eq!(server.loaded(), "big");
}

#[test]
fn models_of_paths_share_the_memory_of_a_budget() {
    let path = |name: &str| {
        let path = format!("{}/python/rsgen/models/{name}", env!("CARGO_MANIFEST_DIR"));
        ModelPath { path, ..ModelPath::default() }
    };
    let (budget, paths) = (64 << 20, [path("story-draft"), path("story-3m")]);
    let options = ServeOptions { models_memory: Some(budget), ..ServeOptions::default() };
    let opened = || GeneratorOptions::new().num_threads(1);
    let models = ServedModel::of_paths(&paths, opened(), &options).unwrap();
    let bytes: u64 = models.iter().map(ServedModel::bytes).sum();
    assert!((budget - 1..=budget).contains(&bytes), "{bytes}");
    let server = Several::new(models, options.clone());
    for name in ["story-draft", "story-3m"] {
        assert_eq!(server.complete(name).0, 200);
    }
    assert_eq!(server.loaded(), "story-draft story-3m");
    let set = ServedModel::of_paths(&paths, opened().kv_cache_bytes(1 << 20), &options).unwrap();
    assert!(set.iter().map(ServedModel::bytes).sum::<u64>() < bytes);
    assert!(ServedModel::of_paths(&[path("none")], opened(), &options).is_err());
}

#[test]
fn metrics_tell_what_each_model_did_also_when_it_is_unloaded() {
    let options = ServeOptions { models_max: Some(1), ..ServeOptions::default() };
    let server = Several::new(stories(&["a", "b"]), options);
    for name in ["a", "b", "a", "b"] {
        assert_eq!(server.complete(name).0, 200);
    }
    let stream = with(&prompt("a"), json!({ "stream": true, "max_tokens": 6 }));
    assert_eq!(server.post(COMPLETIONS, &stream).0, 200);
    let metrics = server.get("/metrics").as_str().unwrap().to_owned();
    for line in [
        "rsgen_generation_tokens_total{model_name=\"a\"} 14\n",
        "rsgen_generation_tokens_total{model_name=\"b\"} 8\n",
        "rsgen_request_success_total{model_name=\"a\",finish_reason=\"length\"} 3\n",
        "rsgen_request_success_total{model_name=\"b\",finish_reason=\"length\"} 2\n",
        "rsgen_time_to_first_token_seconds_count{model_name=\"a\"} 1\n",
        "rsgen_time_to_first_token_seconds_count{model_name=\"b\"} 0\n",
        "rsgen_inter_token_latency_seconds_count{model_name=\"a\"} 5\n",
        "rsgen_e2e_request_latency_seconds_bucket{model_name=\"b\",le=\"+Inf\"} 2\n",
        "rsgen_request_queue_time_seconds_count 5\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[test]
fn many_requests_for_more_models_than_there_is_room_for_all_get_their_answers() {
    let options = ServeOptions { models_max: Some(1), ..ServeOptions::default() };
    let server = Several::new(stories(&["a", "b", "c"]), options);
    let asked = ["a", "b", "c"].into_iter().cycle().take(12);
    let asked: Vec<_> = asked
        .map(|name| (name, server.runtime.spawn(server.answer("POST", COMPLETIONS, &prompt(name)))))
        .collect();
    for (name, answer) in asked {
        let (status, text) = server.runtime.block_on(answer).unwrap();
        assert!(status == 200 && text.contains(&format!("\"model\":\"{name}\"")), "{text}");
    }
    assert_eq!(server.loaded().split(' ').count(), 1);
}

#[test]
fn a_load_that_fails_is_the_error_of_those_who_wait_for_it() {
    let tries = AtomicUsize::new(0);
    let broken = model("broken", move |_| match tries.fetch_add(1, Ordering::Relaxed) {
        0 => {
            std::thread::sleep(Duration::from_millis(100));
            Err(Error::load("path/to/broken: there is no config.json"))
        }
        1 => panic!("on purpose"),
        _ => story(),
    });
    let good = model("good", |_| story()).with_loaded(story().unwrap());
    let server = Several::new(vec![good, broken], ServeOptions::default());
    let waiting = [0, 1].map(|_| server.runtime.spawn(server.answer("POST", COMPLETIONS, &prompt("broken"))));
    for answer in waiting {
        let (status, text) = server.runtime.block_on(answer).unwrap();
        assert!(
            status == 500 && text.contains("model_not_loaded") && text.contains("\\\"broken\\\""),
            "{text}"
        );
        assert!(!text.contains("config.json"), "the paths are for those on this machine alone: {text}");
    }
    assert_eq!(server.models.state.metrics.internal_errors.load(Ordering::Relaxed), 0, "no defect");
    assert_eq!(server.complete("good").0, 200);
    assert_eq!(server.complete("broken").1["error"]["code"], "internal_error", "a panic");
    assert_eq!((server.complete("broken").0, &*server.loaded()), (200, "good broken"));
    let metrics = server.get("/metrics").as_str().unwrap().to_owned();
    assert!(metrics.contains("rsgen_model_load_failures_total{model_name=\"broken\"} 2\n"), "{metrics}");
}

#[test]
fn the_end_of_the_server_ends_a_load_and_those_who_wait_for_it() {
    let (ended, end) = mpsc::channel();
    let endless = model("endless", move |interrupted| {
        while !interrupted() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = ended.send(());
        Err(Error::cancelled())
    });
    let server = Several::new([vec![endless], stories(&["b"])].concat(), ServeOptions::default());
    let waiting = server.runtime.spawn(server.answer("POST", COMPLETIONS, &prompt("endless")));
    server.pause(20);
    server.models.state.enter(Phase::Ended);
    let (status, text) = server.runtime.block_on(waiting).unwrap();
    assert!(status == 503 && text.contains("shutting_down"), "{text}");
    end.recv_timeout(LATEST).unwrap();
}

#[test]
fn an_idle_model_is_unloaded_after_its_time() {
    let keep_alive = Some(Duration::from_millis(50));
    let server = Several::new(stories(&["a", "b"]), ServeOptions { keep_alive, ..ServeOptions::default() });
    let in_use = server.runtime.block_on(server.models.named(Some("a"))).unwrap();
    assert_eq!(server.complete("b").0, 200);
    server.wait_until_loaded_are("a");
    server.pause(100);
    assert_eq!(server.loaded(), "a", "it is in use");
    drop(in_use);
    server.wait_until_loaded_are("");
    // A request says how long its model stays, as Ollama's do.
    let load = |time: Value| server.post("/api/generate", &json!({ "model": "a", "keep_alive": time })).1;
    assert_eq!(load(json!(-1))["done_reason"], "load");
    server.pause(200);
    assert_eq!(server.loaded(), "a");
    assert_eq!(load(json!("0"))["done_reason"], "unload");
    server.wait_until_loaded_are("");
    assert!(load(json!("soon"))["error"].as_str().unwrap().contains("`keep_alive`"));
}

#[test]
fn a_single_model_stays_unless_it_has_a_time() {
    let one = || vec![model("one", |_| story()).with_loaded(story().unwrap())];
    let server = Several::new(one(), ServeOptions::default());
    assert_eq!(server.post("/api/generate", &json!({ "keep_alive": 0 })).0, 200);
    server.pause(50);
    assert_eq!(server.loaded(), "one");
    let keep_alive = Some(Duration::from_millis(1));
    let server = Several::new(one(), ServeOptions { keep_alive, ..ServeOptions::default() });
    server.wait_until_loaded_are("");
    assert_eq!(server.complete("one").0, 200);
}

#[test]
fn models_have_different_names_and_fit_the_budget() {
    let new = |models, options| Models::new(Arc::new(ServerState::new(options, Rule::Any)), models);
    let refused = |models, options| new(models, options).unwrap_err().to_string();
    assert!(refused(stories(&["a", "b", "a"]), ServeOptions::default()).contains("\"a\" twice"));
    let small = ServeOptions { models_memory: Some(999), ..ServeOptions::default() };
    assert!(refused(stories(&["a"]), small).contains("`models_memory` must be at least the 1000 bytes"));
    assert!(refused(Vec::new(), ServeOptions::default()).contains("at least one"));
}
