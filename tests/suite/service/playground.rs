//! The playground: who gets the page, and what it may do.

use std::path::Path;

use rsgen::generation::Strategy;
use rsgen::serve::{Secret, ServeOptions, Server};

use super::*;

const PATHS: [&str; 3] = ["/", "/ui/app.js", "/ui/style.css"];

#[test]
fn the_page_needs_no_key_and_what_it_asks_for_does() {
    let service = Service::bundled(ServeOptions { api_keys: vec![Secret::new("k")], ..options() });
    for path in PATHS {
        assert_eq!(service.get(path, &[]).0, 200, "{path}");
    }
    for path in ["/v1/models", "/openapi.json", "/ui/nothing.js", "/ui/", "/ui/../v1/models"] {
        assert_eq!(service.get(path, &[]).0, 401, "{path}");
    }
    assert_eq!(service.get("/v1/models", &[("authorization", "Bearer k")]).0, 200);
}

#[test]
fn the_page_obeys_the_rules_for_hosts() {
    let service = Service::bundled(options());
    for path in PATHS {
        assert_eq!(service.get(path, &[("host", "evil.example")]).0, 403, "{path}");
        assert_eq!(service.get(path, &[("origin", "http://evil.example")]).0, 403, "{path}");
    }
}

#[test]
fn browsers_let_the_page_ask_nobody_else_and_run_nothing_else() {
    let service = Service::bundled(options());
    for path in PATHS {
        let response = agent().get(format!("{}{path}", service.url)).call().unwrap();
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        let policy = header("content-security-policy");
        for rule in
            ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"]
        {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
    }
    let (_, page) = service.get("/", &[]);
    assert!(page.starts_with("<!doctype html>") && page.contains("ui/app.js"), "{page}");
    let post = agent().post(format!("{}/", service.url)).send("{}").unwrap();
    assert_eq!(post.status().as_u16(), 405);
}

#[test]
fn without_ui_there_is_no_page() {
    let service = Service::bundled(ServeOptions { ui: false, ..options() });
    for path in PATHS {
        assert_eq!(service.get(path, &[]).0, 404, "{path}");
    }
    assert_eq!(service.get("/health", &[]).0, 200);
    let locked = Service::bundled(ServeOptions { ui: false, api_keys: vec![Secret::new("k")], ..options() });
    assert_eq!(locked.get("/", &[]).0, 401);
}

#[test]
fn the_page_is_there_while_the_model_is_loaded() {
    for (ui, expected) in [(true, 200), (false, 503)] {
        let loading = Server::bind(ServeOptions { ui, ..options() }).unwrap().listen().unwrap();
        let status =
            |path: &str| agent().get(format!("{}{path}", loading.url())).call().unwrap().status().as_u16();
        assert_eq!(status("/"), expected);
        assert_eq!(status("/v1/models"), 503);
    }
}

#[test]
fn the_model_tells_what_the_page_offers() {
    let options = rsgen::GeneratorOptions::new().assistant(rsgen::generator::Assistant::Bundled);
    for (generator, has_assistant) in
        [(Generator::bundled().unwrap(), false), (Generator::bundled_with(&options).unwrap(), true)]
    {
        let service = Service::new(generator, super::options());
        let (_, text) = service.get("/v1/models", &[]);
        let model: Value = serde_json::from_str(&text).unwrap();
        let meta = &model["data"][0]["meta"];
        assert_eq!(
            (&meta["has_assistant"], &meta["has_chat_template"]),
            (&json!(has_assistant), &json!(true))
        );
        assert_eq!(meta["generation_config"]["eos_token_id"], 1);
        // The page shows what each strategy does.
        let strategies = meta["strategies"].as_object().unwrap();
        assert!(Strategy::ALL.iter().all(|strategy| strategies[strategy.name] == strategy.doc));
        assert_eq!(strategies.len(), Strategy::ALL.len());
        // A request can do without the assistant.
        let body = json!({ "prompt": PROMPT, "strategy": "greedy_search", "max_new_tokens": 8, "use_assistant": false });
        let request = agent().post(format!("{}/rsgen/v1/generate", service.url));
        let response = request.header("content-type", "application/json").send(body.to_string()).unwrap();
        let first: Value = serde_json::from_str(&events(response).next().unwrap()).unwrap();
        assert_eq!(first["strategy"], "greedy_search");
    }
}

#[test]
fn only_this_machine_is_told_where_the_model_is() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let (model, adapter) = (models.join("models/tied"), models.join("adapters/story"));
    let options = rsgen::GeneratorOptions::new()
        .dtype(rsgen::generator::WeightType::Int8)
        .ignore_generation_config(true)
        .cache_dir(models.clone());
    let generator = Generator::open_with(model.to_str().unwrap(), &options).unwrap();
    let opened = |generator: &Generator, options: ServeOptions| {
        let key = [("authorization", "Bearer k")];
        let text = Service::new(generator.clone(), options).get("/v1/models", &key).1;
        serde_json::from_str::<Value>(&text).unwrap()["data"][0]["meta"]["opened"].clone()
    };
    let mut expected =
        json!({"model": model, "dtype": "int8", "cache_dir": models, "generation_config": "ignore"});
    assert_eq!(opened(&generator, super::options()), expected);
    expected.as_object_mut().unwrap().remove("cache_dir");
    expected["model"] = "tied".into();
    let text = |text: &str| vec![text.to_owned()];
    for options in [
        ServeOptions { api_keys: vec![Secret::new("k")], ..super::options() },
        ServeOptions { allowed_hosts: text("models.example"), ..super::options() },
        ServeOptions { cors_origins: text("http://pages.example"), ..super::options() },
        ServeOptions { host: "0.0.0.0".to_owned(), insecure_no_auth: true, ..super::options() },
    ] {
        assert_eq!(opened(&generator, options), expected);
    }
    // The bundled models are the same everywhere.
    let options = rsgen::GeneratorOptions::new()
        .assistant(rsgen::generator::Assistant::Bundled)
        .adapter(adapter.to_str().unwrap().to_owned());
    let generator = Generator::bundled_with(&options).unwrap();
    let expected = json!({"model": null, "adapter": adapter, "assistant": "draft"});
    assert_eq!(opened(&generator, super::options()), expected);
}
