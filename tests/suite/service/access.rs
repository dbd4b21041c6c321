//! Who may call a server, and what wrong requests are told.

use std::io::{Read as _, Write as _};

use rsgen::serve::{Secret, ServeOptions, Server};
use serde_json::{Value, json};

use super::*;

#[test]
fn every_route_needs_the_key_but_liveness() {
    let service = Service::bundled(ServeOptions { api_keys: vec![Secret::new("canary")], ..options() });
    let key = ("authorization", "Bearer canary");
    let (status, text) = service.get("/openapi.json", &[key]);
    assert_eq!(status, 200, "{text}");
    let description: Value = serde_json::from_str(&text).unwrap();
    let described = description["paths"].as_object().unwrap().keys().map(|path| path.replace("{id}", "x"));
    let paths: Vec<String> = described.chain(["/nowhere".to_owned()]).collect();
    assert!(paths.len() >= 16, "{paths:?}");
    for path in paths.iter().filter(|path| *path != "/health/live") {
        for wrong in [&[][..], &[("authorization", "Bearer canar")], &[("authorization", "Basic canary")]] {
            let (status, text) = service.get(path, wrong);
            if path == "/health/ready" && wrong.is_empty() {
                assert_eq!((status, &*text), (200, "{\"status\":\"ok\"}"), "nothing about the load");
                continue;
            }
            // Errors of LibreTranslate's paths and Ollama's are texts, without a code.
            let is_plain =
                ["/translate", "/languages", "/detect"].contains(&&**path) || path.starts_with("/api/");
            let reason = match () {
                () if is_plain => "{\"error\":\"this server needs a valid API key",
                () if path.starts_with("/v1/messages") => "authentication_error",
                () => "invalid_api_key",
            };
            assert!(status == 401 && text.contains(reason) && !text.contains("canary"), "{path}: {text}");
        }
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            let mut answer = String::new();
            sent(service.address(), &request).read_to_string(&mut answer).unwrap();
            let needs_none = path == "/health/ready";
            assert_eq!(answer.starts_with("HTTP/1.1 401 "), !needs_none, "{method} {path}: {answer}");
        }
        assert_ne!(service.get(path, &[key]).0, 401, "{path}");
        assert_ne!(service.get(path, &[("x-api-key", "canary")]).0, 401, "{path}");
        assert!(path == "/health/ready" || service.get(path, &[("x-api-key", "canar")]).0 == 401, "{path}");
    }
    // The playground asks for the key.
    let (status, page) = service.get("/", &[]);
    assert!(status == 200 && !page.contains("canary"));
    assert_eq!(service.get("/health/live", &[]).0, 200);
}

#[test]
fn pages_of_other_sites_are_refused() {
    let service = Service::bundled(options());
    assert_eq!(service.get("/health", &[]).0, 200);
    for headers in [
        [("host", "evil.example"), ("accept", "*/*")],
        [("host", "localhost"), ("origin", "http://evil.example")],
        [("host", "localhost"), ("origin", "null")],
    ] {
        let (status, text) = service.get("/v1/models", &headers);
        assert!(status == 403 && text.contains("host_not_allowed"), "{headers:?}: {status} {text}");
        assert!(text.contains(&format!("call it at {}", service.url)), "{text}");
    }
    // A page can send forms and plain text to another origin without asking; JSON it cannot.
    for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let request = agent().post(format!("{}{COMPLETIONS}", service.url)).header("content-type", kind);
        assert_eq!(request.send(stream_of(PROMPT, 1).to_string()).unwrap().status(), 415, "{kind}");
    }
    // Ollama's documentation calls its JSON a form. A browser says where a form comes from.
    for (kind, origin, status) in [
        ("application/x-www-form-urlencoded", None, 200),
        ("application/x-www-form-urlencoded", Some("http://evil.example"), 403),
        ("", None, 200),
        ("", Some("http://evil.example"), 403),
        ("text/plain", None, 415),
    ] {
        let url = format!("{}/api/generate", service.url);
        let mut request = agent().post(url).header("content-type", kind);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let body = json!({ "prompt": PROMPT, "raw": true, "stream": false, "options": { "num_predict": 1 } });
        assert_eq!(request.send(body.to_string()).unwrap().status(), status, "{kind} {origin:?}");
    }
    let mut answer = String::new();
    let preflight = "OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:3000\r\n\
                     Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n";
    sent(service.address(), preflight).read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 405 ") && !answer.to_lowercase().contains("access-control"),
        "{answer}"
    );
}

#[test]
fn pages_of_allowed_origins_may_ask_and_read_and_others_may_not() {
    let (ours, other) = ("https://app.example", "https://app.example.evil");
    let keyed = |origin: &str| ServeOptions {
        api_keys: vec![Secret::new("k")],
        cors_origins: vec![origin.to_owned()],
        ..options()
    };
    for allowed in [ours, "*"] {
        let service = Service::bundled(keyed(allowed));
        let ask = |head: &str, origin: &str| {
            let request =
                format!("{head} HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nConnection: close\r\n");
            let asked = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,x-a\r\n";
            let more = if head.starts_with("OPTIONS") { asked } else { "" };
            let mut answer = String::new();
            sent(service.address(), &format!("{request}{more}\r\n")).read_to_string(&mut answer).unwrap();
            answer.to_lowercase()
        };
        for path in [COMPLETIONS, "/v1/models", "/rsgen/v1/generate"] {
            let answer = ask(&format!("OPTIONS {path}"), ours);
            assert!(answer.starts_with("http/1.1 204 "), "it needs no key: {answer}");
            for line in [
                &*format!("access-control-allow-origin: {ours}\r\n"),
                "access-control-allow-headers: authorization,x-a\r\n",
                "access-control-allow-methods: get, post\r\n",
                "vary: origin\r\n",
            ] {
                assert!(answer.contains(line), "{line}: {answer}");
            }
        }
        // A page can read why it is refused.
        let refused = ask("GET /v1/models", ours);
        assert!(
            refused.starts_with("http/1.1 401 ") && refused.contains("access-control-allow-origin: https")
        );
        let (status, _) = service.get("/v1/models", &[("origin", ours), ("authorization", "Bearer k")]);
        assert_eq!(status, 200);
        for head in ["OPTIONS /v1/models", "GET /v1/models"] {
            let answer = ask(head, other);
            let is_refused = answer.starts_with("http/1.1 403 ") && !answer.contains("access-control");
            assert_eq!(is_refused, allowed != "*", "{answer}");
        }
    }
    for wrong in ["app.example", "https://app.example/", "://", ""] {
        let error = Server::bind(keyed(wrong)).unwrap_err().to_string();
        assert!(error.contains("`cors_origin` must be an origin"), "{error}");
    }
}

#[test]
fn wrong_paths_methods_and_bodies_are_answered_in_the_shape_of_openai() {
    let service = Service::bundled(options());
    let error = |text: &str| serde_json::from_str::<Value>(text).unwrap()["error"].clone();
    for (path, hint) in
        [("/v1/files", "/v1/completions"), ("/v1/images/x", "/v1/chat"), ("/x", "/openapi.json")]
    {
        let (status, text) = service.get(path, &[]);
        assert_eq!((status, &error(&text)["code"]), (404, &json!("not_found")));
        assert!(text.contains(hint), "{text}");
    }
    let mut wrong = agent().get(format!("{}{COMPLETIONS}", service.url)).call().unwrap();
    assert_eq!((wrong.status().as_u16(), &wrong.headers()["allow"]), (405, &"POST".parse().unwrap()));
    assert_eq!(error(&wrong.body_mut().read_to_string().unwrap())["code"], "method_not_allowed");
    let mut large = service.post(&json!({ "prompt": "a".repeat(2 << 20) }));
    assert_eq!(
        (large.status().as_u16(), &large.headers()["x-should-retry"]),
        (413, &"false".parse().unwrap())
    );
    assert_eq!(error(&large.body_mut().read_to_string().unwrap())["code"], "request_too_large");
    // Without its length.
    let mut chunked = String::new();
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "[".repeat(1 << 20));
    let head = format!("{HALF_A_HEAD}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut stream = sent(service.address(), &head);
    // The server may close before it has all.
    let _ = (0..3).try_for_each(|_| stream.write_all(chunk.as_bytes()));
    let _ = stream.write_all(b"0\r\n\r\n");
    let _ = stream.read_to_string(&mut chunked);
    assert!(chunked.starts_with("HTTP/1.1 413 "), "{chunked}");
    let mut invalid = service.post(&json!({ "prompt": PROMPT, "temperature": -1 }));
    assert_eq!(
        (invalid.status().as_u16(), &invalid.headers()["x-should-retry"]),
        (400, &"false".parse().unwrap())
    );
    assert_eq!(error(&invalid.body_mut().read_to_string().unwrap())["param"], "temperature");
    service.wait_until_all_is_free();
}

#[test]
fn requests_have_ids() {
    let service = Service::bundled(options());
    let id = |given: Option<&str>| {
        let request = agent().get(format!("{}/health/live", service.url));
        let request = given.iter().fold(request, |request, id| request.header("x-request-id", *id));
        request.call().unwrap().headers()["x-request-id"].to_str().unwrap().to_owned()
    };
    assert_eq!(id(Some("mine-7")), "mine-7");
    assert_ne!(id(None), id(None));
    assert!(id(Some("not plain")).starts_with("req-"));
}

#[test]
fn other_machines_need_a_key() {
    for host in ["0.0.0.0", "::"] {
        let open = ServeOptions { host: host.to_owned(), ..options() };
        let error = Server::bind(open.clone()).unwrap_err().to_string();
        assert!(error.contains("`host`") && error.contains("api_key"), "{error}");
        for safe in [
            ServeOptions { api_keys: vec![Secret::new("k")], ..open.clone() },
            ServeOptions { insecure_no_auth: true, ..open.clone() },
        ] {
            // A machine may be without IPv6.
            let bound = Server::bind(safe);
            assert!(host == "::" || bound.is_ok(), "{bound:?}");
        }
    }
    let server = Server::bind(options()).unwrap();
    let port = server.url().rsplit(':').next().unwrap().parse().unwrap();
    let taken = Server::bind(ServeOptions { port, ..options() }).unwrap_err();
    assert!(taken.kind() == rsgen::ErrorKind::Config && taken.to_string().contains("is in use"), "{taken}");
    let unknown = ServeOptions { host: "no such host".to_owned(), ..options() };
    assert!(Server::bind(unknown).unwrap_err().to_string().contains("`host`"));
    assert!(Server::bind(ServeOptions { api_keys: vec![Secret::new(" ")], ..options() }).is_err());
}

#[test]
fn health_tells_what_is_free() {
    let service = Service::bundled(options());
    for path in ["/health", "/health/ready"] {
        let (status, text) = service.get(path, &[]);
        let health: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &health["status"], &health["running"]), (200, &json!("ok"), &json!(0)));
        assert_eq!(health["free_blocks"], service.stats().max_blocks);
    }
    let (_, version) = service.get("/version", &[]);
    assert_eq!(serde_json::from_str::<Value>(&version).unwrap()["version"], env!("CARGO_PKG_VERSION"));
}
